//! `ceph` as scripts of tests call it: has the server of `ceph_server.py` run the stock program with this process's arguments, environment,
//! folder and standard descriptors, and exits as that does. Where the server's process would not see what this one sees (another network or
//! other files), or there is none, it becomes the stock program.

use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};
use std::ffi::{OsStr, OsString};
use std::io::{self, IoSlice, Read, Write};
use std::mem::MaybeUninit;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

const STOCK: &str = "/usr/bin/ceph";
/// Names the server's socket.
const SERVER: &str = "NACRE_CEPH_SERVER";
/// The server's process.
const SERVER_PID: &str = "NACRE_CEPH_SERVER_PID";

/// Network, files and user.
fn place(process: &str) -> io::Result<[u64; 3]> {
    let namespace =
        |kind: &str| std::fs::metadata(format!("/proc/{process}/ns/{kind}")).map(|file| file.ino());
    let user = std::fs::metadata(format!("/proc/{process}"))?.uid();
    Ok([namespace("net")?, namespace("mnt")?, user.into()])
}

fn connect() -> Option<UnixStream> {
    let (server, pid) = (std::env::var_os(SERVER)?, std::env::var(SERVER_PID).ok()?);
    if place("self").ok()? != place(&pid).ok()? {
        return None;
    }
    UnixStream::connect(server).ok()
}

fn request() -> io::Result<Vec<u8>> {
    let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
    let mut out = Vec::new();
    let mut put = |word: &OsStr| {
        out.extend_from_slice(word.as_bytes());
        out.push(0);
    };
    put(OsStr::new(&arguments.len().to_string()));
    arguments.iter().for_each(|argument| put(argument));
    put(std::env::current_dir()?.as_os_str());
    for (name, value) in std::env::vars_os() {
        put(&[name, value].join(OsStr::new("=")));
    }
    Ok(out)
}

fn ask(mut server: UnixStream) -> io::Result<u8> {
    let request = request()?;
    let length = u32::try_from(request.len()).map_err(io::Error::other)?.to_le_bytes();
    let (input, output, errors) = (io::stdin(), io::stdout(), io::stderr());
    let descriptors = [input.as_fd(), output.as_fd(), errors.as_fd()];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(3))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !control.push(SendAncillaryMessage::ScmRights(&descriptors)) {
        return Err(io::Error::other("no room for three descriptors"));
    }
    sendmsg(&server, &[IoSlice::new(&length)], &mut control, SendFlags::empty())?;
    server.write_all(&request)?;
    let mut status = [0];
    server.read_exact(&mut status)?;
    Ok(status[0])
}

/// Status of a call that was not served: no `ceph` exits with it, and no script may take it for a refusal (`nok`).
const NOT_SERVED: u8 = 199;

fn main() -> ExitCode {
    match connect() {
        Some(server) => ExitCode::from(ask(server).unwrap_or_else(|error| {
            let _closed = writeln!(io::stderr(), "ceph was not served: {error}");
            NOT_SERVED
        })),
        None => {
            // Returns only if it fails.
            let _error = Command::new(STOCK).args(std::env::args_os().skip(1)).exec();
            ExitCode::from(127)
        }
    }
}
