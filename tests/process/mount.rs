//! Small file systems of a test's own, each in a mount namespace that ends with it: a tmpfs where the kernel lets ordinary
//! processes have namespaces, an ext4 on a loop device where this runs as root.

#![allow(dead_code)]

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};

/// A mounted file system. A shell holds its namespace.
pub(crate) struct Mount {
    shell: Child,
    commands: ChildStdin,
    answers: BufReader<ChildStdout>,
    /// Where it is mounted, in the namespace.
    inside: PathBuf,
    /// How it is mounted.
    command: String,
}

impl Mount {
    /// A tmpfs of `size` bytes at `folder`. `None`, loudly, where that cannot be had.
    pub(crate) fn tmpfs(folder: &Path, size: u64) -> Option<Mount> {
        let command = format!("mount -t tmpfs -o size={size} tmpfs {}", folder.display());
        Mount::new(&["--user", "--map-root-user", "--mount"], folder, command)
    }

    /// An ext4 of `size` bytes at `folder`, on a loop device over the file `image`. `None`, loudly, where that cannot be had.
    pub(crate) fn ext4(folder: &Path, image: &Path, size: u64) -> Option<Mount> {
        let file = std::fs::File::create(image).expect("an image");
        file.set_len(size).expect("an image");
        let made = Command::new("mkfs.ext4").arg("-q").arg(image).output();
        if !made.is_ok_and(|output| output.status.success()) {
            return Mount::missing("no mkfs.ext4");
        }
        let command = format!("mount -o loop {} {}", image.display(), folder.display());
        Mount::new(&["--mount"], folder, command)
    }

    fn missing(why: &str) -> Option<Mount> {
        eprintln!("\n!!! {why} here: NOT TESTED\n");
        None
    }

    fn new(namespaces: &[&str], folder: &Path, command: String) -> Option<Mount> {
        let shell = Command::new("unshare")
            .args(namespaces)
            .args(["--propagation", "private", "sh"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn();
        let Ok(mut shell) = shell else {
            return Mount::missing("no unshare");
        };
        let mut mount = Mount {
            commands: shell.stdin.take().expect("piped"),
            answers: BufReader::new(shell.stdout.take().expect("piped")),
            shell,
            inside: folder.to_owned(),
            command,
        };
        if mount.mount() {
            Some(mount)
        } else {
            Mount::missing("no mounts")
        }
    }

    /// Runs a shell command in the namespace. Whether it succeeded.
    pub(crate) fn run(&mut self, command: &str) -> bool {
        let sent = writeln!(self.commands, "{command} >/dev/null; echo done $?");
        let mut answer = String::new();
        sent.is_ok() && self.answers.read_line(&mut answer).is_ok() && answer == "done 0\n"
    }

    /// Mounts it, again after [`Mount::unmount`].
    pub(crate) fn mount(&mut self) -> bool {
        let command = self.command.clone();
        self.run(&command)
    }

    pub(crate) fn unmount(&mut self) -> bool {
        self.run(&format!("umount {}", self.inside.display()))
    }

    /// Its root, for processes of other namespaces: this one, and servers.
    pub(crate) fn path(&self) -> PathBuf {
        let inside = self.inside.strip_prefix("/").expect("an absolute path");
        Path::new(&format!("/proc/{}/root", self.shell.id())).join(inside)
    }

    /// Its root in the namespace.
    pub(crate) fn inside(&self) -> &Path {
        &self.inside
    }

    /// Makes an ext4 stop taking writes at once, as if the power had gone: what was not synced is lost. (The ioctl that
    /// file system tests use, `EXT4_IOC_SHUTDOWN` without flushing the log.)
    pub(crate) fn cut_power(&mut self) -> bool {
        let script = r#"open(F, "<", $ARGV[0]) or die; $flags = pack("L", 2); ioctl(F, 0x8004587d, $flags) or die"#;
        self.run(&format!("perl -e '{script}' {}", self.inside.display()))
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        // The mounts go with the namespace, which goes with its last process.
        let _ = self.shell.kill();
        let _ = self.shell.wait();
    }
}
