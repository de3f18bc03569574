//! Seeded network and disks on a virtual clock, running the real machines.
