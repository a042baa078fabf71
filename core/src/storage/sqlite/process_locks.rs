//! Makes SQLite's locks such that nobody else in this process can drop them.
//!
//! SQLite uses POSIX locks, which belong to the process: if anybody in the process closes any descriptor of a file, all
//! its locks are dropped, and two copies of SQLite in one process do not see each other's locks. A program may open our
//! file with the copy that its language has (Python's `sqlite3`, `better-sqlite3`). When it closes the file, that copy
//! takes itself for the last connection, folds the log into the database and removes it, while we still write into the
//! log. When it opens the file, it cuts off the shared memory that we have mapped.
//!
//! So four system calls of our own copy of SQLite are replaced by the ones here. For the files of our databases, and
//! for no others, they turn a lock of the process into a lock of the open file description. Such a lock ends only when
//! we release it. Others in the process meet it as they would meet that of another process, and both kinds exclude each
//! other.
//!
//! Each description has its own locks. SQLite locks one file through the descriptors of several connections, so all of
//! these requests are sent through the descriptor that locked first; SQLite keeps that one open while the file is
//! locked. A forked child gets new descriptions without its parent's locks, as it would have none of its parent's POSIX
//! locks.
//!
//! Where the system has no such locks, only the look at the files before each answer protects the data
//! (`file_identity.rs`).

use std::fs::File;
use std::path::Path;

/// Makes the locks on a database locks of the open file description. Call it before the database is opened.
pub(super) fn watch(path: &Path) {
    system::watch(path);
}

/// Keeps the locks on a file from forked children: a child gets a new description of the file, without them. Call
/// [`let_go`] before the file is closed.
pub(super) fn keep(file: &File) {
    system::keep(file, true);
}

/// Ends [`keep`]. The file is about to be closed, and its descriptor may be used for another.
pub(super) fn let_go(file: &File) {
    system::keep(file, false);
}

#[cfg(not(all(target_os = "linux", target_pointer_width = "64")))]
mod system {
    pub(super) fn watch(_: &std::path::Path) {}

    pub(super) fn keep(_: &std::fs::File, _: bool) {}
}

#[cfg(all(target_os = "linux", target_pointer_width = "64"))]
mod system {
    use libc::{c_char, c_int, c_void, flock};
    use rusqlite::ffi;
    use std::ffi::{CStr, CString};
    use std::fs::File;
    use std::os::fd::AsRawFd;
    use std::os::unix::ffi::OsStrExt;
    use std::path::Path;
    use std::ptr::null_mut;
    use std::sync::Once;
    use std::sync::atomic::{AtomicI32, AtomicPtr, AtomicU8, AtomicU64, Ordering::SeqCst};

    /// A descriptor that is none of ours.
    const OTHER: u8 = 0;
    /// A descriptor of a database.
    const DATABASE: u8 = 1;
    /// A descriptor of a database's shared memory.
    const MEMORY: u8 = 2;
    /// A descriptor in a forked child that could not be opened anew. It takes no locks.
    const DEAD: u8 = 3;
    /// A descriptor of a file that SQLite does not know, such as the lock file.
    const BESIDE: u8 = 4;

    /// The bytes of a database that SQLite locks: `PENDING_BYTE` and those that follow it.
    const PENDING: i64 = 0x4000_0000;
    const RESERVED: i64 = PENDING + 1;
    const SHARED: (i64, i64) = (PENDING + 2, 510);
    /// The byte of the shared memory by which SQLite tells that somebody uses it (`UNIX_SHM_DMS`).
    const IN_USE: (i64, i64) = (128, 1);
    /// The bit of [`parts`] for the shared bytes.
    const SHARED_PART: u8 = 4;

    /// Descriptors with higher numbers keep POSIX locks.
    const MANY: usize = 1 << 16;

    /// What each descriptor is.
    static KINDS: [AtomicU8; MANY] = [const { AtomicU8::new(OTHER) }; MANY];
    /// For each descriptor by which a shared memory is locked, the descriptor by which it is mapped. They are two,
    /// since a mapping keeps its description open in every forked child, whatever the child does with its descriptors,
    /// and the description keeps its locks.
    static MAPPED: [AtomicI32; MANY] = [const { AtomicI32::new(-1) }; MANY];
    static HIGHEST: AtomicI32 = AtomicI32::new(-1);
    static HELD: [Held; 256] = [const { Held::free() }; 256];
    static WATCHED: AtomicPtr<Watched> = AtomicPtr::new(null_mut());

    /// A database that is locked: through which descriptor, and which of its bytes. SQLite locks one file from one
    /// thread at a time, so the fields need not change together. There is no mutex in this module: a child that is
    /// forked while another thread holds it could never take it.
    struct Held {
        fd: AtomicI32,
        device: AtomicU64,
        inode: AtomicU64,
        parts: AtomicU8,
    }

    /// The value of `fd` in an entry that is not used.
    const FREE: i32 = -1;
    /// The value of `fd` while an entry is being filled.
    const TAKEN: i32 = -2;

    impl Held {
        const fn free() -> Self {
            Self {
                fd: AtomicI32::new(FREE),
                device: AtomicU64::new(0),
                inode: AtomicU64::new(0),
                parts: AtomicU8::new(0),
            }
        }

        fn of((device, inode): (u64, u64)) -> Option<&'static Self> {
            HELD.iter().find(|held| {
                held.fd.load(SeqCst) >= 0 && held.device.load(SeqCst) == device && held.inode.load(SeqCst) == inode
            })
        }

        fn make((device, inode): (u64, u64), fd: c_int) -> Option<&'static Self> {
            let held = HELD.iter().find(|held| held.fd.compare_exchange(FREE, TAKEN, SeqCst, SeqCst).is_ok())?;
            held.device.store(device, SeqCst);
            held.inode.store(inode, SeqCst);
            held.parts.store(0, SeqCst);
            held.fd.store(fd, SeqCst);
            Some(held)
        }
    }

    /// The path of a database, in a list that only grows: a few bytes for each database that was ever opened. So it can
    /// be read without a lock.
    struct Watched {
        path: CString,
        next: *const Watched,
    }

    pub(super) fn watch(path: &Path) {
        static ONCE: Once = Once::new();
        ONCE.call_once(install);
        let Ok(path) = CString::new(path.as_os_str().as_bytes()) else { return };
        if watched().any(|one| one.path == path) {
            return;
        }
        let new = Box::leak(Box::new(Watched { path, next: null_mut() }));
        let mut head = WATCHED.load(SeqCst);
        loop {
            new.next = head;
            match WATCHED.compare_exchange(head, new, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(found) => head = found,
            }
        }
    }

    pub(super) fn keep(file: &File, is_open: bool) {
        set_kind(file.as_raw_fd(), if is_open { BESIDE } else { OTHER });
    }

    fn watched() -> impl Iterator<Item = &'static Watched> {
        let mut next: *const Watched = WATCHED.load(SeqCst);
        std::iter::from_fn(move || {
            // SAFETY: entries are leaked and never change once they are in the list.
            let one = unsafe { next.as_ref() }?;
            next = one.next;
            Some(one)
        })
    }

    /// Replaces four system calls of our copy of SQLite. Other copies have a table of their own and keep theirs.
    fn install() {
        type Call = unsafe extern "C" fn();
        type Open = unsafe extern "C" fn(*const c_char, c_int, c_int) -> c_int;
        type Close = unsafe extern "C" fn(c_int) -> c_int;
        type Control = unsafe extern "C" fn(c_int, c_int, *mut c_void) -> c_int;
        type Map = unsafe extern "C" fn(*mut c_void, usize, c_int, c_int, c_int, i64) -> *mut c_void;
        // SAFETY: SQLite calls these with the arguments of the calls they replace. `fcntl` has a variable number of them,
        // which this system passes in the same registers. The atfork handler only does what a signal handler may.
        unsafe {
            let vfs = ffi::sqlite3_vfs_find(c"unix".as_ptr());
            let Some(set) = vfs.as_ref().and_then(|vfs| vfs.xSetSystemCall) else { return };
            if libc::pthread_atfork(None, None, Some(forked)) != 0 {
                return;
            }
            set(vfs, c"mmap".as_ptr(), Some(std::mem::transmute::<Map, Call>(mmap)));
            set(vfs, c"close".as_ptr(), Some(std::mem::transmute::<Close, Call>(close)));
            set(vfs, c"fcntl".as_ptr(), Some(std::mem::transmute::<Control, Call>(fcntl)));
            set(vfs, c"open".as_ptr(), Some(std::mem::transmute::<Open, Call>(open)));
        }
    }

    fn kind(fd: c_int) -> u8 {
        usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd)).map_or(OTHER, |kind| kind.load(SeqCst))
    }

    fn set_kind(fd: c_int, kind: u8) {
        if let Some(known) = usize::try_from(fd).ok().and_then(|fd| KINDS.get(fd)) {
            HIGHEST.fetch_max(fd, SeqCst);
            known.store(kind, SeqCst);
        }
    }

    fn errno() -> c_int {
        // SAFETY: the address is this thread's own.
        unsafe { *libc::__errno_location() }
    }

    fn fail(errno: c_int) -> c_int {
        // SAFETY: as above.
        unsafe { *libc::__errno_location() = errno };
        -1
    }

    unsafe extern "C" fn open(path: *const c_char, flags: c_int, mode: c_int) -> c_int {
        // SAFETY: SQLite's own arguments.
        let (fd, path) = unsafe { (libc::open(path, flags, mode), CStr::from_ptr(path)) };
        if fd >= 0 {
            let is = |one: &Watched| match path.to_bytes().strip_prefix(one.path.as_bytes()) {
                Some(b"") => Some(DATABASE),
                Some(b"-shm") => Some(MEMORY),
                _ => None,
            };
            if let Some(kind) = watched().find_map(is) {
                set_kind(fd, kind);
                if kind == MEMORY
                    && let Some(mapped) = mapped(fd)
                {
                    // SAFETY: as above, but for making the file.
                    let beside = unsafe { libc::open(path.as_ptr(), flags & !(libc::O_CREAT | libc::O_EXCL)) };
                    mapped.store(beside, SeqCst);
                }
            }
        }
        fd
    }

    fn mapped(fd: c_int) -> Option<&'static AtomicI32> {
        usize::try_from(fd).ok().and_then(|fd| MAPPED.get(fd))
    }

    unsafe extern "C" fn mmap(
        at: *mut c_void,
        length: usize,
        protection: c_int,
        flags: c_int,
        fd: c_int,
        offset: i64,
    ) -> *mut c_void {
        let beside = mapped(fd).map_or(-1, |mapped| mapped.load(SeqCst));
        let same = beside >= 0 && kind(fd) == MEMORY && identity(beside).is_some() && identity(beside) == identity(fd);
        // SAFETY: SQLite's own arguments; the other descriptor is of the same file.
        unsafe { libc::mmap(at, length, protection, flags, if same { beside } else { fd }, offset) }
    }

    unsafe extern "C" fn close(fd: c_int) -> c_int {
        if kind(fd) != OTHER {
            set_kind(fd, OTHER);
            let beside = mapped(fd).map_or(-1, |mapped| mapped.swap(-1, SeqCst));
            if beside >= 0 {
                // SAFETY: opened here for this descriptor alone.
                unsafe { libc::close(beside) };
            }
            for held in HELD.iter().filter(|held| held.fd.load(SeqCst) == fd) {
                held.fd.store(FREE, SeqCst);
            }
        }
        // SAFETY: SQLite's own descriptor.
        unsafe { libc::close(fd) }
    }

    unsafe extern "C" fn fcntl(fd: c_int, command: c_int, argument: *mut c_void) -> c_int {
        let kind = kind(fd);
        if kind == OTHER || (command != libc::F_SETLK && command != libc::F_GETLK) {
            // SAFETY: SQLite's own arguments.
            return unsafe { libc::fcntl(fd, command, argument) };
        }
        // SAFETY: for these two commands the argument is a `flock` that SQLite owns.
        let lock = unsafe { &mut *argument.cast::<flock>() };
        match kind {
            MEMORY => of_description(fd, command, lock),
            DATABASE => of_database(fd, command, lock),
            _ if command == libc::F_GETLK => {
                lock.l_type = libc::F_WRLCK as _;
                0
            }
            _ if is_unlock(lock) => 0,
            _ => fail(libc::EACCES),
        }
    }

    fn is_unlock(lock: &flock) -> bool {
        c_int::from(lock.l_type) == libc::F_UNLCK as c_int
    }

    fn plain(fd: c_int, command: c_int, lock: &mut flock) -> c_int {
        // SAFETY: the structure is valid for the call; a wrong descriptor is an error only.
        unsafe { libc::fcntl(fd, command, std::ptr::from_mut(lock)) }
    }

    /// Carries out a lock request of the process on the open file description.
    fn of_description(fd: c_int, command: c_int, lock: &mut flock) -> c_int {
        lock.l_pid = 0;
        let own = if command == libc::F_SETLK { libc::F_OFD_SETLK } else { libc::F_OFD_GETLK };
        match plain(fd, own, lock) {
            // The kernel or the file system has no such locks.
            -1 if errno() == libc::EINVAL => plain(fd, command, lock),
            answer => answer,
        }
    }

    /// As [`of_description`], through the descriptor by which the database is locked already.
    fn of_database(fd: c_int, command: c_int, lock: &mut flock) -> c_int {
        let Some(identity) = identity(fd) else { return plain(fd, command, lock) };
        let held = Held::of(identity);
        if command == libc::F_GETLK {
            return of_description(held.map_or(fd, |held| held.fd.load(SeqCst)), command, lock);
        }
        let parts = parts(lock);
        if is_unlock(lock) {
            let Some(held) = held else { return plain(fd, command, lock) };
            let answer = of_description(held.fd.load(SeqCst), command, lock);
            if answer == 0 && held.parts.fetch_and(!parts, SeqCst) & !parts == 0 {
                held.fd.store(FREE, SeqCst);
            }
            return answer;
        }
        let Some(held) = held.or_else(|| Held::make(identity, fd)) else { return plain(fd, command, lock) };
        match of_description(held.fd.load(SeqCst), command, lock) {
            0 => {
                held.parts.fetch_or(parts, SeqCst);
                0
            }
            answer => {
                let why = errno();
                if held.parts.load(SeqCst) == 0 {
                    held.fd.store(FREE, SeqCst);
                }
                // The descriptor that locked first may be read-only, which cannot take a write lock. SQLite is told
                // that the file is busy.
                if why == libc::EBADF { fail(libc::EAGAIN) } else { answer }
            }
        }
    }

    /// Which bytes of a database a lock covers: one bit each for the pending, the reserved and the shared bytes.
    fn parts(lock: &flock) -> u8 {
        let end = if lock.l_len == 0 { i64::MAX } else { lock.l_start + lock.l_len };
        let has = |first: i64, length: i64| lock.l_start < first + length && first < end;
        u8::from(has(PENDING, 1)) | u8::from(has(RESERVED, 1)) << 1 | u8::from(has(SHARED.0, SHARED.1)) << 2
    }

    fn identity(fd: c_int) -> Option<(u64, u64)> {
        // SAFETY: `stat` is plain data; the call writes into it only.
        unsafe {
            let mut stat: libc::stat = std::mem::zeroed();
            (libc::fstat(fd, &mut stat) == 0).then_some((stat.st_dev, stat.st_ino))
        }
    }

    /// Runs in a forked child: gives every descriptor a new description, and takes the shared locks again that SQLite
    /// believes it has. With its parent's descriptions, child and parent would not exclude each other, and the parent's
    /// locks would outlive the parent.
    extern "C" fn forked() {
        let ours = (0..=HIGHEST.load(SeqCst)).filter(|fd| matches!(kind(*fd), DATABASE | MEMORY));
        for fd in (0..=HIGHEST.load(SeqCst)).filter(|fd| kind(*fd) == BESIDE) {
            opens_again(fd);
        }
        for fd in ours {
            if !opens_again(fd) || (kind(fd) == MEMORY && !shares(fd, IN_USE)) {
                set_kind(fd, DEAD);
            }
        }
        for held in &HELD {
            let fd = held.fd.load(SeqCst);
            if fd >= 0 && held.parts.load(SeqCst) & SHARED_PART != 0 && !shares(fd, SHARED) {
                set_kind(fd, DEAD);
            }
            held.parts.fetch_and(SHARED_PART, SeqCst);
        }
    }

    fn shares(fd: c_int, (start, length): (i64, i64)) -> bool {
        // SAFETY: `flock` is plain data for which all zeroes is a valid value.
        let mut lock: flock = unsafe { std::mem::zeroed() };
        (lock.l_type, lock.l_whence) = (libc::F_RDLCK as _, libc::SEEK_SET as _);
        (lock.l_start, lock.l_len) = (start, length);
        of_description(fd, libc::F_SETLK, &mut lock) == 0
    }

    fn opens_again(fd: c_int) -> bool {
        let mut path = *b"/proc/self/fd/0000000000\0";
        let mut rest = fd;
        for digit in path.iter_mut().rev().skip(1).take(10) {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        // The kernel knows numbers without leading zeros only.
        let first = path[14..23].iter().take_while(|digit| **digit == b'0').count();
        path.copy_within(14 + first..25, 14);
        // SAFETY: calls that a signal handler may make, on a path that ends with a zero and descriptors of this process.
        unsafe {
            let mut new = libc::open(path.as_ptr().cast(), libc::O_RDWR | libc::O_CLOEXEC);
            if new < 0 {
                new = libc::open(path.as_ptr().cast(), libc::O_RDONLY | libc::O_CLOEXEC);
            }
            if new < 0 {
                return false;
            }
            let moved = libc::dup3(new, fd, libc::O_CLOEXEC) == fd;
            libc::close(new);
            moved
        }
    }
}
