//! What flatkube keeps on disk: log records, sidecars, shelves and manifests, as pure functions over bytes.
