//! See `flatkube_fuzz::data_directory`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::data_directory(data));
