"""What goes wrong in a run: crashes, cuts, disks in trouble, files damaged, lost or put back."""
