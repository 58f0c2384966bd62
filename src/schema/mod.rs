//! Shapes of the built-in kinds, made by `build.rs`.
