//! See `flatkube_fuzz::continue_token`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::continue_token(data));
