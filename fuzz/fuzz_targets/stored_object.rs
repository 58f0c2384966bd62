//! See `flatkube_fuzz::stored_object`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::stored_object(data));
