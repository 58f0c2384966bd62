//! See `flatkube_fuzz::tree_changes`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::tree_changes(data));
