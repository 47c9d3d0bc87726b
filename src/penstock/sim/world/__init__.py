"""The simulated machines: virtual time, network, disks, and the processes of nodes on them."""
