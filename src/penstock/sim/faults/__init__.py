"""Faults of a run: crashes, cuts, disks in trouble, files damaged, lost or rolled back."""
