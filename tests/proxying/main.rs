//! What is answered elsewhere - by kubelets, Pods, Services, other API servers - as a client of this server sees it.

mod aggregated;
#[path = "../process/client.rs"]
mod calls;
mod client;
mod kubectl;
mod kubelet;
mod logs;
#[path = "../process/mod.rs"]
mod process;
mod proxies;
mod streams;
mod webhooks;
