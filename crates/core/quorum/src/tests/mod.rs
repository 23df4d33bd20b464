//! Members over disks and a network that fail by a seed, and what must hold of them.

mod rules;
mod stories;
mod world;
