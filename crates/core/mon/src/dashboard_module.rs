//! The manager's module `dashboard` as our own manager has it: the web page's options, under the names that Ceph's has, and what they come to.
//!
//! It is always on, as nothing that a `ceph-mgr` would have to load is to stand in the map: Debian's has no such module unless it is
//! installed. Port 0 switches it off.

use crate::own_module::{self, KIND_INT, KIND_STR, option};
use nacre_msg::{ModuleInfo, ModuleOption};
use std::net::{IpAddr, Ipv4Addr};
use std::path::PathBuf;

/// The module's name, which is also that of its service in the managers' map.
pub(crate) const MODULE: &str = "dashboard";
/// What its options' names begin with.
pub(crate) const OPTIONS: &str = "mgr/dashboard/";
const SERVER_ADDR: &str = "server_addr";
const SERVER_PORT: &str = "server_port";
const SSL_SERVER_PORT: &str = "ssl_server_port";
const CRT_FILE: &str = "crt_file";
const KEY_FILE: &str = "key_file";
/// Without TLS a port near that of the metrics: the page is on by default, and the 8080 of Ceph's dashboard, which is not, is often
/// somebody else's. With TLS the one that Ceph's has.
const PORT: u16 = 9280;
const SSL_PORT: u16 = 8443;

/// Where an operator wants the web page.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WantedPage {
    /// The address to listen at; without TLS one of this machine alone.
    pub addr: IpAddr,
    /// The TCP port to listen at.
    pub port: u16,
    /// The options say so; else another port will do where that one is taken.
    pub is_port_fixed: bool,
    /// Files of the certificate chain and of its key, PEM. With them the page is served by TLS, to those alone who log in.
    pub tls: Option<(PathBuf, PathBuf)>,
}

/// The module as our own manager has it.
pub(crate) fn module() -> ModuleInfo {
    let port = |name, default: u16, text| {
        let option = option(name, KIND_INT, &default.to_string(), text);
        ModuleOption { min: "0".to_owned(), max: u16::MAX.to_string(), ..option }
    };
    own_module::module(
        MODULE,
        [
            option(
                SERVER_ADDR,
                KIND_STR,
                "127.0.0.1",
                "Address of the web page; beyond this machine it needs crt_file and key_file",
            ),
            port(SERVER_PORT, PORT, "Port of the web page without TLS; 0: none"),
            port(SSL_SERVER_PORT, SSL_PORT, "Port of the web page with TLS and a login; 0: none"),
            option(CRT_FILE, KIND_STR, "", "File of the TLS certificate and those that sign it, PEM"),
            option(KEY_FILE, KIND_STR, "", "File of the certificate's private key, PEM"),
        ],
    )
}

/// What is wrong with a value of one of the module's options that its kind does not tell.
pub(crate) fn check_option(name: &str, value: &str) -> Result<(), String> {
    let is_addr = name.strip_prefix(OPTIONS).is_some_and(|rest| rest.ends_with(SERVER_ADDR));
    if is_addr && !value.is_empty() && value.parse::<IpAddr>().is_err() {
        return Err(format!("{SERVER_ADDR} is an IP address such as 127.0.0.1 or ::, not '{value}'"));
    }
    Ok(())
}

/// What the options come to; `None` where they want no page.
///
/// # Errors
/// Why it cannot be shown so, and what to do.
pub(crate) fn wanted<'a>(value: impl Fn(&str) -> Option<&'a str>) -> Result<Option<WantedPage>, String> {
    let text = |name| value(name).filter(|text| !text.is_empty());
    let addr =
        text(SERVER_ADDR).and_then(|text| text.parse().ok()).unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    let tls = match (text(CRT_FILE), text(KEY_FILE)) {
        (Some(certificate), Some(key)) => Some((PathBuf::from(certificate), PathBuf::from(key))),
        (None, None) => None,
        _ => return Err(format!("of {CRT_FILE} and {KEY_FILE} only one is set: set the other one, too")),
    };
    let (name, usual) = if tls.is_some() { (SSL_SERVER_PORT, SSL_PORT) } else { (SERVER_PORT, PORT) };
    let port: Option<u16> = text(name).and_then(|text| text.parse().ok());
    if port == Some(0) {
        return Ok(None);
    }
    if tls.is_none() && !addr.is_loopback() {
        return Err(format!(
            "at {addr}, beyond this machine, it is served by TLS only: set {CRT_FILE} and {KEY_FILE}"
        ));
    }
    Ok(Some(WantedPage { addr, port: port.unwrap_or(usual), is_port_fixed: port.is_some(), tls }))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(options: &[(&str, &'static str)]) -> Result<Option<WantedPage>, String> {
        wanted(|name| options.iter().find(|(at, _)| *at == name).map(|(_, value)| *value))
    }

    #[test]
    fn beyond_this_machine_it_needs_tls() {
        let page = of(&[]).expect("the default").expect("shown");
        assert_eq!(
            (page.addr.to_string().as_str(), page.port, page.is_port_fixed),
            ("127.0.0.1", 9280, false)
        );
        assert!(of(&[("server_addr", "10.0.0.1")]).is_err_and(|why| why.contains("crt_file")));
        assert!(of(&[("server_addr", "::")]).is_err());
        assert!(of(&[("crt_file", "/a")]).is_err_and(|why| why.contains("only one")));
        let files = [("crt_file", "/a"), ("key_file", "/b"), ("server_addr", "::"), ("server_port", "0")];
        let page = of(&files).expect("valid").expect("the other port");
        assert_eq!((page.port, page.tls), (8443, Some(("/a".into(), "/b".into()))));
        assert_eq!(of(&[("server_port", "0")]), Ok(None));
        assert!(of(&[("server_addr", "::1"), ("server_port", "9")]).is_ok_and(|page| {
            page.is_some_and(|page| page.port == 9 && page.is_port_fixed && page.tls.is_none())
        }));
        assert!(check_option("mgr/dashboard/server_addr", "nowhere").is_err());
        assert!(check_option("mgr/dashboard/a/server_addr", "::1").is_ok());
    }
}
