//! What is said when a mapped page cannot be read: the third file of the engine with `unsafe`, for a signal's handler.
//!
//! The kernel answers a read of a mapped page that the device cannot give, or that somebody cut off the file, with
//! `SIGBUS`. There is nothing to go on with: the slice that was lent out has no bytes. So the process ends, but not
//! silently: a line on standard error names the file and the offset in it, and then the signal does what it does by
//! default, so that the exit status, a core dump and whoever waits for the process see what they would have seen.
//!
//! # How
//! [`Map`](super::Map)s note their address range and their file's name in a table that is fixed in size (64 KiB of zeroed
//! memory, touched a page at a time: 64 bytes a map). The handler looks the address up there, formats into a buffer on its
//! stack and calls `write` once: no lock, no allocation. It then puts back the handler that was there before (of the Rust
//! runtime, which tells stack overflows) and returns; the instruction faults again, and what follows is not ours.
//! It is put back last because other threads may be faulting, too: the one whose fault ends the process has told its own.
//!
//! The runtime gives each of its threads an alternate stack for signals. The handler needs less than 2 KiB of it.
//!
//! # Why by hand
//! `signal-hook-registry`, the well-kept crate for handlers, calls the earlier handler first. That of the runtime takes
//! itself and us away, so a second thread that faults then would end the process before anything is said. It does not ask
//! for the alternate stack either.

#![allow(
    unsafe_code,
    reason = "a handler of a signal cannot be set without; each use is justified below"
)]

use std::io;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, AtomicUsize, Ordering};

/// Maps that can be told apart. A store of a million objects has some hundreds.
const SLOTS: usize = 1024;
/// Bytes of a file's name that are kept. Those of [`super::files`] are shorter.
const NAME_MAX: usize = 47;
/// Bytes of the whole message.
const LINE_MAX: usize = 640;
const ADVICE: &str = "): the disk failed, or another program shortened the file. The process ends; what was acknowledged \
    was synced before.\nwhat to do: look for errors of the disk in the kernel's log, copy the data directory to another disk, \
    and run 'flatkube store verify' on the copy. If that names damage, go back to a backup with 'flatkube store restore', or \
    save what can be read with 'flatkube store export'.\n";
/// Values of [`Slot::start`] that are no address.
const FREE: usize = 0;
const TAKEN: usize = 1;

static MAPS: [Slot; SLOTS] = [const { Slot::free() }; SLOTS];
/// Maps alive for which there was no slot.
static UNREGISTERED: AtomicUsize = AtomicUsize::new(0);
/// What was done about the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// What is known of one map.
struct Slot {
    /// Where it begins, [`FREE`], or [`TAKEN`] while it is filled in.
    start: AtomicUsize,
    end: AtomicUsize,
    name: [AtomicU8; NAME_MAX],
    name_len: AtomicU8,
}

impl Slot {
    const fn free() -> Slot {
        Slot {
            start: AtomicUsize::new(FREE),
            end: AtomicUsize::new(0),
            name: [const { AtomicU8::new(0) }; NAME_MAX],
            name_len: AtomicU8::new(0),
        }
    }

    fn fill(&self, start: usize, len: usize, name: &str) {
        let name = &name.as_bytes()[..name.floor_char_boundary(NAME_MAX)];
        for (to, from) in self.name.iter().zip(name) {
            to.store(*from, Ordering::Relaxed);
        }
        self.name_len.store(name.len() as u8, Ordering::Relaxed);
        self.end.store(start + len, Ordering::Relaxed);
        self.start.store(start, Ordering::Release);
    }
}

/// A map's place in the table; left when it is dropped, which must be before the map is unmapped.
#[derive(Debug)]
pub(super) struct Registration(Option<usize>);

impl Registration {
    /// Notes that `len` bytes from `start` on are the file `name`. Without a free slot a fault there is told without the name.
    pub(super) fn new(start: *const u8, len: usize, name: &str) -> Registration {
        for (index, slot) in MAPS.iter().enumerate() {
            let take = || {
                slot.start
                    .compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed)
            };
            if slot.start.load(Ordering::Relaxed) == FREE && take().is_ok() {
                slot.fill(start.addr(), len, name);
                return Registration(Some(index));
            }
        }
        UNREGISTERED.fetch_add(1, Ordering::Relaxed);
        Registration(None)
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        match self.0 {
            Some(index) => MAPS[index].start.store(FREE, Ordering::Release),
            None => drop(UNREGISTERED.fetch_sub(1, Ordering::Relaxed)),
        }
    }
}

/// A place in a mapped file.
struct Place {
    slot: &'static Slot,
    offset: usize,
}

/// The file that is mapped at `address`. The map that a thread faulted in is not dropped meanwhile, so its slot stays as it
/// is; one that is filled anew between two looks is told by its start.
fn find(address: usize) -> Option<Place> {
    MAPS.iter().find_map(|slot| {
        let start = slot.start.load(Ordering::Acquire);
        let holds = start > TAKEN && (start..slot.end.load(Ordering::Acquire)).contains(&address);
        let offset = address.wrapping_sub(start);
        (holds && slot.start.load(Ordering::Acquire) == start).then_some(Place { slot, offset })
    })
}

/// Text of bounded length that needs no heap and little stack. What does not fit is left out.
struct Line {
    bytes: [u8; LINE_MAX],
    len: usize,
}

impl Line {
    const fn empty() -> Line {
        Line {
            bytes: [0; LINE_MAX],
            len: 0,
        }
    }

    fn push(&mut self, byte: u8) {
        if let Some(free) = self.bytes.get_mut(self.len) {
            *free = byte;
            self.len += 1;
        }
    }

    fn text(&mut self, text: &str) {
        text.bytes().for_each(|byte| self.push(byte));
    }

    /// Digits by hand: formatting by the library takes more of the alternate stack than all the rest.
    fn number(&mut self, number: usize, base: usize) {
        let mut unit = 1;
        while number / unit >= base {
            unit *= base;
        }
        while unit > 0 {
            self.push(b"0123456789abcdef"[number / unit % base]);
            unit /= base;
        }
    }

    fn told(&self) -> &[u8] {
        &self.bytes[..self.len]
    }
}

/// Puts into `line` what is said of a fault at `address`. `false` if that is not in a map of ours.
fn tell(address: usize, line: &mut Line) -> bool {
    match find(address) {
        Some(Place { slot, offset }) => {
            line.text("flatkube: SIGBUS: cannot read ");
            let len = slot.name_len.load(Ordering::Acquire).into();
            for byte in slot.name.iter().take(len) {
                line.push(byte.load(Ordering::Acquire));
            }
            line.text(" of the data directory at offset ");
            line.number(offset, 10);
        }
        None if UNREGISTERED.load(Ordering::Relaxed) > 0 => {
            line.text("flatkube: SIGBUS: cannot read a mapped file that is not registered");
        }
        None => return false,
    }
    line.text(" (address 0x");
    line.number(address, 16);
    line.text(ADVICE);
    true
}

/// From now on a mapped page that cannot be read ends the process with a line on standard error. For the whole process,
/// once; what did something about `SIGBUS` before still does for other faults.
///
/// # Errors
/// When the kernel refuses the handler: faults end the process silently then.
pub fn explain_bus_errors() -> io::Result<()> {
    if BEFORE.get().is_some() {
        return Ok(());
    }
    // SAFETY: `sigaction` is plain old data of C, for which zeroes are a value; both calls get pointers to live ones, or null
    // where they may. The handler has the signature that `SA_SIGINFO` asks for and is safe in a signal: see `on_bus_error`.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) != 0 {
            return Err(io::Error::last_os_error());
        }
        // Known before the handler can run.
        if BEFORE.set(before).is_err() {
            return Ok(());
        }
        let mut ours: libc::sigaction = std::mem::zeroed();
        ours.sa_sigaction = on_bus_error as *const () as libc::sighandler_t;
        ours.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        if libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Runs between any two instructions of its thread: takes no lock, allocates nothing, touches atomics and its own stack.
extern "C" fn on_bus_error(signal: libc::c_int, info: *mut libc::siginfo_t, _context: *mut libc::c_void) {
    // SAFETY: with `SA_SIGINFO` the kernel passes a valid `siginfo_t`. For `SIGBUS` with a positive code `si_addr` is set.
    let (is_fault, address) = unsafe { ((*info).si_code > 0, (*info).si_addr().addr()) };
    let mut line = Line::empty();
    if is_fault && tell(address, &mut line) {
        // There is nobody to tell that it could not be told.
        let _ = rustix::io::write(io::stderr(), line.told());
    }
    // SAFETY: `sigaction` and `raise` are async-signal-safe. `before` was filled in by `sigaction`, or is zeroes, which is the
    // default action.
    unsafe {
        let default: libc::sigaction = std::mem::zeroed();
        // A signal that somebody sent does not come again by itself, and asks for the end of the process.
        let before = BEFORE.get().filter(|_| is_fault).unwrap_or(&default);
        libc::sigaction(signal, ptr::from_ref(before), ptr::null_mut());
        if !is_fault {
            libc::raise(signal);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Address ranges that no map has: they are never read.
    const NOWHERE: usize = 0x10_0000;

    fn told(address: usize) -> Option<String> {
        let mut line = Line::empty();
        tell(address, &mut line).then(|| String::from_utf8(line.told().to_vec()).unwrap())
    }

    fn name_at(address: usize) -> String {
        let line = told(address).unwrap();
        line.split(' ').nth(4).unwrap().to_owned()
    }

    #[test]
    fn a_fault_is_told_with_file_and_offset_while_the_map_lives() {
        let start = NOWHERE + 0x1000;
        let registration = Registration::new(ptr::without_provenance(start), 0x1000, "shelf-0000000007");
        let line = told(start + 0xfff).unwrap();
        assert!(
            line.contains("cannot read shelf-0000000007 of the data directory at offset 4095 (address 0x101fff)"),
            "{line}"
        );
        assert!(line.ends_with("'flatkube store export'.\n"), "it is cut off: {line}");
        assert_eq!(told(start - 1), None);
        assert_eq!(told(start + 0x1000), None);
        drop(registration);
        assert_eq!(told(start), None);
    }

    #[test]
    fn a_name_that_is_too_long_is_cut_between_letters() {
        let start = NOWHERE + 0x4000;
        let name = format!("{}é and more", "x".repeat(NAME_MAX - 1));
        let _registration = Registration::new(ptr::without_provenance(start), 1, &name);
        assert_eq!(name_at(start), "x".repeat(NAME_MAX - 1));
    }

    #[test]
    fn slots_are_used_again_and_threads_do_not_share_them() {
        let rounds = if cfg!(miri) { 10 } else { 1000 };
        std::thread::scope(|scope| {
            for thread in 0..4 {
                scope.spawn(move || {
                    let start = NOWHERE + (0x10 + thread) * 0x1000;
                    for round in 0..rounds {
                        let name = format!("file-{thread}-{round}");
                        let registration = Registration::new(ptr::without_provenance(start), 16, &name);
                        assert!(registration.0.is_some());
                        assert_eq!(name_at(start + 15), name);
                    }
                });
            }
        });
    }
}
