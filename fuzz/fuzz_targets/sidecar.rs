//! See `flatkube_fuzz::sidecar`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::sidecar(data));
