"""Tests mirror the tree. This file must exist, and tests/platform/ must not: pytest would import them under names that others have."""
