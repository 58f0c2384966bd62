//! `/flatkube/v1/backup`: all files of the store at one revision, as a tar archive of slices of the mapped files.
//!
//! For members of `system:masters`: it holds every Secret. The manifest is the last file, so an archive that was cut off has
//! none, and nothing that is restored from it passes for whole.

use std::collections::VecDeque;

use bytes::Bytes;
use http::{HeaderName, HeaderValue, StatusCode, header};

use super::Api;
use super::body::{Body, Response};
use super::status::Status;
use crate::auth::User;
use crate::store::BackupFile;

/// The path.
pub(crate) const PATH: &str = "/flatkube/v1/backup";
/// The header that tells the revision.
pub(crate) const REVISION: HeaderName = HeaderName::from_static("flatkube-revision");

const MASTERS: &str = "system:masters";
/// Bytes of a tar block.
const BLOCK: usize = 512;

/// Streams a backup of the newest revision.
pub(super) fn answer(api: &Api, user: &User) -> Result<Response, Status> {
    if !user.groups.iter().any(|group| group == MASTERS) {
        let why = format!("User {:?} cannot get path {PATH:?}", user.name);
        return Err(Status::forbidden("", "", "", &why));
    }
    let backup = api.reader.store.backup().map_err(Status::internal)?;
    let mut parts = VecDeque::new();
    for file in backup.files {
        parts.push_back(head(&file)?);
        let padding = (file.len() as usize).next_multiple_of(BLOCK) - file.len() as usize;
        parts.extend(file.pieces);
        parts.push_back(Bytes::from_static(&[0; BLOCK]).slice(..padding));
    }
    parts.push_back(Bytes::from_static(&[0; 2 * BLOCK]));
    let mut response = http::Response::new(Body::parts(parts));
    *response.status_mut() = StatusCode::OK;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/x-tar"));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    headers.insert(REVISION, HeaderValue::from(backup.revision));
    Ok(response)
}

fn head(file: &BackupFile) -> Result<Bytes, Status> {
    let mut head = tar::Header::new_ustar();
    head.set_path(&file.name).map_err(Status::internal)?;
    head.set_size(file.len());
    head.set_mode(0o600);
    head.set_cksum();
    Ok(Bytes::copy_from_slice(head.as_bytes()))
}
