//! See `flatkube_fuzz::tree`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::tree(data));
