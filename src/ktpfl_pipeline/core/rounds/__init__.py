"""The parts of a round that do not depend on the method: cohort, evaluation, early stopping, and new clients."""
