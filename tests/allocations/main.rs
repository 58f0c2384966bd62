//! Allocations, counted, not guessed: what a store keeps, and what a request takes.

#[path = "../../benches/micro/asking.rs"]
mod asking;
mod growth;
#[path = "../../benches/micro/opened.rs"]
#[allow(dead_code, reason = "benchmarks use more of it")]
mod opened;
mod requests;
#[path = "../store_toy/mod.rs"]
mod store_toy;
#[path = "../../benches/micro/stored.rs"]
#[allow(dead_code, reason = "benchmarks use more of it")]
mod stored;
