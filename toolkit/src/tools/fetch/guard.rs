//! Which addresses a page may be fetched from: those of the public internet, and others only where the worker allows
//! them.
//!
//! Names are resolved here, and the connection is made to what was checked. So a name that gives another address a
//! moment later leads nowhere else.

use reqwest::Url;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use std::error::Error;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;

/// The hosts that may be asked although their addresses are not public.
#[derive(Debug, Clone, Default)]
pub(super) struct Guard(pub Arc<[String]>);

/// An address that is not asked.
#[derive(Debug)]
pub(super) struct Refused {
    host: String,
    address: IpAddr,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, address } = self;
        write!(f, "{host} is the address {address}, which is not of the public internet; this worker does not ask it")
    }
}

impl Error for Refused {}

impl Guard {
    /// Checks a host that is written as an address. A name is checked when it is resolved.
    pub(super) fn check(&self, url: &Url) -> Result<(), Refused> {
        let host = url.host_str().unwrap_or_default();
        match host.trim_matches(['[', ']']).parse::<IpAddr>() {
            Ok(address) if !self.allows(host) && !is_public(address) => Err(Refused { host: host.to_owned(), address }),
            _ => Ok(()),
        }
    }

    fn allows(&self, host: &str) -> bool {
        is_among(&self.0, host)
    }

    /// The refusal that has made a request fail.
    pub(super) fn refusal<'e>(error: &'e (dyn Error + 'static)) -> Option<&'e Refused> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(refused) = error.downcast_ref() {
                return Some(refused);
            }
            cause = error.source();
        }
        None
    }
}

impl Resolve for Guard {
    fn resolve(&self, name: Name) -> Resolving {
        let guard = self.clone();
        Box::pin(async move {
            let host = name.as_str();
            let found: Vec<SocketAddr> = tokio::net::lookup_host((host, 0)).await?.collect();
            let private = found.iter().find(|found| !is_public(found.ip()));
            match private.filter(|_| !guard.allows(host)) {
                Some(private) => Err(Refused { host: host.to_owned(), address: private.ip() }.into()),
                None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}

/// Whether a host is in a list. `*.example.com` stands for all names below a domain.
pub(super) fn is_among(hosts: &[String], host: &str) -> bool {
    let host = host.trim_end_matches('.').to_ascii_lowercase();
    hosts.iter().map(|listed| listed.to_ascii_lowercase()).any(|listed| match listed.strip_prefix('*') {
        Some(ending) if ending.starts_with('.') => host.ends_with(ending),
        _ => host == listed,
    })
}

/// Whether an address belongs to the public internet.
fn is_public(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(address) => is_public_v4(address),
        IpAddr::V6(address) => is_public_v6(address),
    }
}

fn is_public_v4(address: Ipv4Addr) -> bool {
    let [a, b, c, _] = address.octets();
    let is_reserved = matches!(
        (a, b, c),
        // This network, shared addresses of carriers, protocol assignments, benchmarks, and what is reserved.
        (0, ..) | (100, 64..=127, _) | (192, 0, 0) | (198, 18..=19, _) | (240.., ..)
    );
    !(is_reserved
        || address.is_loopback()
        || address.is_private()
        || address.is_link_local()
        || address.is_documentation()
        || address.is_multicast())
}

fn is_public_v6(address: Ipv6Addr) -> bool {
    let [a, b, ..] = address.segments();
    let low = address.octets();
    let v4 = |at: usize| Ipv4Addr::new(low[at], low[at + 1], low[at + 2], low[at + 3]);
    if let Some(mapped) = address.to_ipv4_mapped() {
        return is_public_v4(mapped);
    }
    match (a, b) {
        // Addresses that stand for one of IPv4: NAT64 and 6to4.
        (0x64, 0xff9b) => is_public_v4(v4(12)),
        (0x2002, _) => is_public_v4(v4(2)),
        // Teredo and documentation.
        (0x2001, 0 | 0xdb8) => false,
        // Only this block is given out as public addresses.
        _ => a & 0xe000 == 0x2000,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_the_public_internet_are_asked() {
        for (address, public) in [
            ("93.184.216.34", true),
            ("2606:2800:220:1:248:1893:25c8:1946", true),
            ("127.0.0.1", false),
            ("127.9.9.9", false),
            ("0.0.0.0", false),
            ("10.1.2.3", false),
            ("172.16.0.1", false),
            ("172.32.0.1", true),
            ("192.168.1.1", false),
            ("169.254.169.254", false),
            ("100.64.0.1", false),
            ("192.0.0.192", false),
            ("198.18.0.1", false),
            ("224.0.0.1", false),
            ("255.255.255.255", false),
            ("::", false),
            ("::1", false),
            ("fe80::1", false),
            ("fc00::1", false),
            ("fd00:ec2::254", false),
            ("ff02::1", false),
            ("::ffff:127.0.0.1", false),
            ("::ffff:93.184.216.34", true),
            ("::127.0.0.1", false),
            ("64:ff9b::7f00:1", false),
            ("64:ff9b::5db8:d822", true),
            ("2002:7f00:1::", false),
            ("2001::1", false),
            ("2001:db8::1", false),
        ] {
            assert_eq!(is_public(address.parse().expect("an address")), public, "{address}");
        }
    }

    #[test]
    fn hosts_are_allowed_by_name_or_by_domain() {
        let hosts = ["docs.rs".to_owned(), "*.Example.com".to_owned()];
        for (host, is) in [
            ("docs.rs", true),
            ("DOCS.RS", true),
            ("docs.rs.", true),
            ("evil-docs.rs", false),
            ("a.example.com", true),
            ("example.com", false),
            ("badexample.com", false),
        ] {
            assert_eq!(is_among(&hosts, host), is, "{host}");
        }
        let guard = Guard(["10.0.0.5".to_owned()].into());
        let check = |url: &str| guard.check(&Url::parse(url).expect("a URL")).is_ok();
        assert!(check("http://10.0.0.5/") && !check("http://10.0.0.6/") && !check("http://[::1]/"));
        // What a browser takes for an address is one.
        assert!(!check("http://2130706433/") && !check("http://0x7f.1/") && !check("http://0177.0.0.1/"));
    }
}
