//! See `flatkube_fuzz::protobuf`.

#![no_main]

libfuzzer_sys::fuzz_target!(|data: &[u8]| flatkube_fuzz::protobuf(data));
