//! Who is calling: client certificates and static tokens.
