"""A synthetic table of patients: numbers on different scales, gaps, categories, and a diagnosis that few have.

python tests/support/patients.py patients.csv    writes 2,500 patients of nine clinics, of whom 15 % are ill
"""

import csv
import sys
from pathlib import Path

import numpy as np

COLUMNS = ("patient_id", "hospital", "age", "sex", "bmi", "systolic", "hba1c", "creatinine", "crp", "smoker")


def write(file: Path, patients: int = 2500, clinics: int = 9) -> None:
    """Write the table. Clinics have different sizes and risks; the risk is not linear."""
    draw = np.random.default_rng(0)
    clinic = draw.choice(clinics, patients, p=draw.dirichlet(np.full(clinics, 3.0)))
    age, bmi = draw.normal(58, 13, patients).clip(20, 95), draw.normal(27, 4.5, patients)
    pressure, hba1c = draw.normal(132, 17, patients), draw.gamma(20, 0.29, patients)
    creatinine, crp = draw.lognormal(4.35, 0.25, patients), draw.lognormal(0.8, 0.8, patients)
    sex, smoker = draw.choice(["f", "m"], patients), draw.choice(["yes", "no", "former"], patients, p=[0.2, 0.5, 0.3])
    scaled = [(each - each.mean()) / each.std() for each in (age, hba1c, pressure, creatinine, np.log(crp), bmi)]
    risk = np.array([0.9, 0.6, 0.5, 0.5, 0.3, 0.0]) @ scaled + 0.4 * scaled[-1] ** 2 + 0.5 * (smoker == "yes")
    risk += (sex == "m") * (0.3 + 0.6 * scaled[0]) + draw.normal(0, 0.35, clinics)[clinic]
    ill, gaps = draw.random(patients) < 1 / (1 + np.exp(3.3 - risk)), draw.random((3, patients)) < 0.03
    with file.open("w", newline="") as opened:
        rows = csv.writer(opened)
        rows.writerow([*COLUMNS, "diagnosis"])
        for n in range(patients):
            known = ["" if gap[n] else f"{values[n]:.1f}" for gap, values in zip(gaps, (bmi, hba1c, crp), strict=True)]
            plain = [f"P{n:05d}", f"clinic {clinic[n] + 1}", f"{age[n]:.0f}", sex[n], known[0], f"{pressure[n]:.0f}"]
            rows.writerow(
                [*plain, known[1], f"{creatinine[n]:.0f}", known[2], smoker[n], "disease" if ill[n] else "healthy"]
            )


if __name__ == "__main__":
    write(Path(sys.argv[1]))
