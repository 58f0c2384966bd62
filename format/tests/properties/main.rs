//! Properties of the format, tested on arbitrary things.

mod arbitrary_bytes;
mod damage;
mod exercise;
mod generate;
mod refusals;
mod round_trip;
mod specimens;
