//! [`Errno`]: the error numbers that clients see, as Linux counts them.

use std::fmt;

/// A positive Linux error number; goes over the wire negated.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Errno(pub i32);

macro_rules! errnos {
    ($($name:ident $value:literal $text:literal;)*) => {
        impl Errno {
            $(#[doc = $text] pub const $name: Self = Self($value);)*

            /// The symbolic name, such as `ENOENT`.
            #[must_use]
            pub fn symbol(self) -> &'static str {
                match self.0 { $($value => stringify!($name),)* _ => "EUNKNOWN" }
            }
        }
    };
}

errnos! {
    EPERM 1 "Operation not permitted";
    ENOENT 2 "No such file or directory";
    EIO 5 "Input/output error";
    ENXIO 6 "No such device or address";
    E2BIG 7 "Argument list too long";
    ENOEXEC 8 "Exec format error";
    EBADF 9 "Bad file descriptor";
    EAGAIN 11 "Try again";
    ENOMEM 12 "Out of memory";
    EACCES 13 "Permission denied";
    EBUSY 16 "Device or resource busy";
    EEXIST 17 "File exists";
    ENODEV 19 "No such device";
    EINVAL 22 "Invalid argument";
    EFBIG 27 "File too large";
    ENOSPC 28 "No space left on device";
    EROFS 30 "Read-only file system";
    EDOM 33 "Math argument out of domain";
    ERANGE 34 "Result not representable";
    ENAMETOOLONG 36 "File name too long";
    ENOSYS 38 "Function not implemented";
    ENOTEMPTY 39 "Directory not empty";
    ENODATA 61 "No data available";
    EOVERFLOW 75 "Value too large";
    EILSEQ 84 "Illegal byte sequence";
    EOLDSNAPC 85 "Snapshot context is older than the object's";
    EMSGSIZE 90 "Message too long";
    EOPNOTSUPP 95 "Operation not supported";
    ENOTCONN 107 "Not connected";
    ESHUTDOWN 108 "Blocklisted (EBLOCKLISTED shares this number)";
    ETIMEDOUT 110 "Timed out";
    EALREADY 114 "Already in progress";
    EINPROGRESS 115 "In progress";
    ESTALE 116 "Stale handle";
    EDQUOT 122 "Quota exceeded";
    ECANCELED 125 "Cancelled";
}

impl Errno {
    /// The negative result that a reply carries.
    #[must_use]
    pub const fn negated(self) -> i32 {
        -self.0
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}({})", self.symbol(), self.0)
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.symbol(), self.0)
    }
}

impl std::error::Error for Errno {}
