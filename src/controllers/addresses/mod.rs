//! The address ranges of Services, and an object for each address that a Service has.
//!
//! | file | what it does |
//! | --- | --- |
//! | `ranges` | ServiceCIDRs: ready, and kept while addresses are in them |
//! | `given` | IPAddresses: one for each address of a Service |

mod given;
mod ranges;

pub(super) use given::Given;
pub(super) use ranges::Ranges;

const RANGES: &str = "servicecidrs.networking.k8s.io";
const ADDRESSES: &str = "ipaddresses.networking.k8s.io";
const SERVICES: &str = "services";
/// Objects of a listing that are taken at a time.
const RUN_MAX: usize = 64;
