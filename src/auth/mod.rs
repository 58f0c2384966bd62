//! Who is calling: client certificates and static tokens.

mod user;

pub use user::User;
