//! Commands of containers, as far as they decide how long one runs and how it ends: the little of a shell that tests and examples use
//! (`sleep`, `exit`, `echo`, `test`, `if`, `while`, variables, arithmetic, files that are there or not).
//!
//! Nothing is run. What is not understood has the end [`End::Unknown`]. A script is as long as a Pod may be, so its steps, its nesting
//! and what it prints are bounded.

mod arithmetic;
mod parse;
mod run;

pub(super) use run::{Disk, End, Ended, Run};
