//! The storage engine: log, shelves, views, history. It knows bytes, keys, revisions and sidecars, nothing of kinds or HTTP.
