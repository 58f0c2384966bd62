//! What callgrind counts: everything between entering and leaving one function, which it finds by name.

/// Part of the name of the one function, for `--toggle-collect`.
pub(crate) const PATTERN: &str = "*counted_region*";

/// Runs `body` once uncounted, so that caches are filled and files are mapped, and then `rounds` times counted.
pub(crate) fn counted(rounds: u64, mut body: impl FnMut()) {
    body();
    counted_region(rounds, &mut body);
}

/// Runs `body` counted, once.
pub(crate) fn counted_once(body: impl FnOnce()) {
    let mut body = Some(body);
    counted_region(1, &mut || body.take().expect("one round")());
}

#[inline(never)]
fn counted_region(rounds: u64, body: &mut dyn FnMut()) {
    for _ in 0..rounds {
        body();
    }
}
