//! See `flatkube_fuzz::shelf`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::shelf(data));
