//! What is particular to each kind: names, columns, selectable fields, defaults, validation.
