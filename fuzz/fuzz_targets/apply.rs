//! See `flatkube_fuzz::apply`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::apply(data));
