"""A federation of features for real clients, written to files."""

import numpy as np
from real_clients import deal_out

COLUMNS = ("age", "sex=f", "sex=m", "hba1c")
UNITS = np.array([60.0, 0.5, 0.5, 40.0]), np.array([12.0, 0.5, 0.5, 6.0])


def features(seed, size, shape):
    """Return features with different units by column, and labels that they tell."""
    rng = np.random.default_rng(seed)
    labels = rng.permutation(size) % 2
    mean, spread = (each.reshape(-1, *[1] * (len(shape) - 1)) for each in UNITS)
    drawn = rng.normal(size=(size, *shape)) + labels.reshape(-1, *[1] * len(shape))
    return (mean + spread * drawn).astype(np.float32), labels


def dealt(folder, method, architectures, shape=(4,), rounds=2, columns=COLUMNS, **beside):
    """Write a federation of features, and return the clients' files."""
    files = deal_out(folder, method, architectures, rounds, **beside)
    named = {"columns": np.array(columns)} if len(shape) == 1 else {}
    for n in range(len(files)):
        inputs, labels = features(n, 40, shape)
        np.savez(folder / f"clients/{n}/data.npz", features=inputs, labels=labels, **named)
    np.savez(folder / "public.npz", features=features(9, 40, shape)[0], **named)
    return files
