//! Real `kubectl` against the real binary: the outside judge of what a user sees.
//!
//! The kubectl on PATH goes through everything; `kubectl.1.NN` beside it go through a short pass. Without any kubectl
//! these tests say so loudly and check nothing.

mod credentials;
mod custom;
mod deleting;
mod errors;
mod generators;
mod history;
mod kinds;
mod manifests;
mod pods;
#[path = "../process/mod.rs"]
mod process;
mod reading;
mod rollout;
mod server_side;
mod sets;
mod subresources;
mod tool;
mod versions;
mod watching;
mod workloads;
mod writing;
