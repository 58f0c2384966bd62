//! Leaving root's rights behind before anything is opened or listened on (`--user`).
//!
//! Linux knows rights of threads, not of processes: this runs while there is one thread, and those that come later have
//! what it has then. There is no way back: the saved ids change, too, and no program that is executed later gains rights.

use std::fs::{self, DirBuilder};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _};
use std::path::Path;

use rustix::fs::{AtFlags, CWD};
use rustix::process::{Gid, Uid, geteuid, getuid};
use rustix::thread::{set_no_new_privs, set_thread_gid, set_thread_groups, set_thread_uid};

use super::{Exit, Failure};

/// Whom the process becomes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Ids {
    user: u32,
    group: u32,
}

/// Becomes `user` (`NAME`, `NAME:GROUP`, or numbers), to whom the data directory is given if it is made now.
///
/// # Errors
/// When the user is not known or is root, when this process may not become it, or when the data directory is somebody else's.
pub(super) fn become_user(user: &str, data_dir: Option<&Path>) -> Result<(), Failure> {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    let ids = ids(user, &read("/etc/passwd"), &read("/etc/group"))
        .map_err(|reason| Failure::new(Exit::Usage, format!("--user {user}: {reason}")))?;
    if geteuid().as_raw() == ids.user && getuid().as_raw() == ids.user {
        return Ok(());
    }
    if !geteuid().is_root() {
        return Err(Failure::new(
            Exit::NotPermitted,
            format!("--user {user}: only root can become another user"),
        ));
    }
    let threads = fs::read_dir("/proc/self/task").map_or(0, Iterator::count);
    if threads != 1 {
        let reason = format!("--user {user}: the process has {threads} threads already");
        return Err(Failure::new(Exit::Failure, reason));
    }
    if let Some(data_dir) = data_dir {
        give(data_dir, ids)?;
    }
    let failed = |what: &str, error: rustix::io::Errno| {
        Failure::new(Exit::NotPermitted, format!("--user {user}: cannot {what}: {error}"))
    };
    set_thread_groups(&[]).map_err(|error| failed("leave root's groups", error))?;
    set_thread_gid(Gid::from_raw(ids.group)).map_err(|error| failed("take the group", error))?;
    set_thread_uid(Uid::from_raw(ids.user)).map_err(|error| failed("become the user", error))?;
    set_no_new_privs(true).map_err(|error| failed("give up gaining rights", error))?;
    if geteuid().is_root() || getuid().is_root() || set_thread_uid(Uid::ROOT).is_ok() {
        let reason = format!("--user {user}: the rights of root are still there");
        return Err(Failure::new(Exit::Failure, reason));
    }
    Ok(())
}

/// Makes the data directory for its owner alone, or looks whose it is.
fn give(data_dir: &Path, ids: Ids) -> Result<(), Failure> {
    let made = DirBuilder::new().mode(0o700).create(data_dir);
    match made {
        Ok(()) => {
            let (user, group) = (Uid::from_raw(ids.user), Gid::from_raw(ids.group));
            rustix::fs::chownat(CWD, data_dir, Some(user), Some(group), AtFlags::SYMLINK_NOFOLLOW)
                .map_err(|error| Failure::io("give away", data_dir, &error.into()))
        }
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            let owner = fs::metadata(data_dir)
                .map_err(|error| Failure::io("look at", data_dir, &error))?
                .uid();
            if owner == ids.user {
                return Ok(());
            }
            let reason = format!("{} belongs to the user with the number {owner}", data_dir.display());
            let advice = format!("chown -R {}:{} {}", ids.user, ids.group, data_dir.display());
            Err(Failure::new(Exit::NotPermitted, reason).advise(advice))
        }
        Err(error) => Err(Failure::io("make the directory", data_dir, &error)),
    }
}

/// The numbers of a user and its group, by the files that name them.
fn ids(text: &str, passwd: &str, group: &str) -> Result<Ids, String> {
    let (user, group_name) = text
        .split_once(':')
        .map_or((text, None), |(user, group)| (user, Some(group)));
    let known = entry(passwd, user);
    let number = |fields: &[&str], index: usize| fields.get(index).and_then(|field| field.parse::<u32>().ok());
    let user_id = match &known {
        Some(fields) => number(fields, 2),
        None => user.parse().ok(),
    };
    let user_id = user_id.ok_or_else(|| format!("there is no user {user} in /etc/passwd"))?;
    let group_id = match group_name {
        Some(name) => match entry(group, name) {
            Some(fields) => number(&fields, 2),
            None => name.parse().ok(),
        }
        .ok_or_else(|| format!("there is no group {name} in /etc/group"))?,
        None => known.as_ref().and_then(|fields| number(fields, 3)).unwrap_or(user_id),
    };
    if user_id == 0 || group_id == 0 {
        return Err("this is root".to_owned());
    }
    // The number that stands for "leave it".
    if user_id == u32::MAX || group_id == u32::MAX {
        return Err("this number is nobody's".to_owned());
    }
    Ok(Ids {
        user: user_id,
        group: group_id,
    })
}

/// The fields of the line that begins with a name, or has it as its number.
fn entry<'a>(file: &'a str, name: &str) -> Option<Vec<&'a str>> {
    let lines = || file.lines().map(|line| line.split(':').collect::<Vec<_>>());
    let by_name = lines().find(|fields| !name.is_empty() && fields.first() == Some(&name));
    by_name.or_else(|| lines().find(|fields| !name.is_empty() && fields.get(2) == Some(&name)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_found_by_name_and_by_number() {
        const PASSWD: &str = "root:x:0:0:root:/root:/bin/sh\nkube:x:990:991::/:/bin/false\nodd:x:x:1::/:\n";
        const GROUP: &str = "root:x:0:\nkube:x:991:\nstore:x:77:kube\n";
        let of = |text| ids(text, PASSWD, GROUP).map(|ids| (ids.user, ids.group));
        assert_eq!(of("kube"), Ok((990, 991)));
        assert_eq!(of("990"), Ok((990, 991)));
        assert_eq!(of("kube:store"), Ok((990, 77)));
        assert_eq!(of("kube:5"), Ok((990, 5)));
        assert_eq!(of("1234"), Ok((1234, 1234)));
        for refused in [
            "",
            ":",
            "root",
            "0",
            "kube:root",
            "kube:0",
            "nobody",
            "kube:nobody",
            "odd",
            "4294967295",
            "-1",
        ] {
            assert!(of(refused).is_err(), "{refused}");
        }
    }
}
