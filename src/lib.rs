//! flatkube: a Kubernetes API server in one binary, served from a zero-copy storage engine.
//!
//! Who may call whom, top to bottom only: [`cli`] → [`controllers`], [`scheduler`], [`hollow`] → `events` → [`api`] → [`admission`], [`auth`] → [`patch`], [`resources`] →
//! [`schema`] → [`cel`] → [`tree`], [`scalars`], [`store`], `re2` → [`flatkube_format`].

pub mod admission;
pub mod api;
pub mod audit;
pub mod auth;
pub mod cel;
pub mod cli;
pub mod controllers;
pub mod encryption;
mod events;
pub mod hollow;
pub mod patch;
mod re2;
pub mod remote;
pub mod resources;
pub mod scalars;
pub mod scheduler;
pub mod schema;
pub mod store;
mod sync;
pub mod tree;
