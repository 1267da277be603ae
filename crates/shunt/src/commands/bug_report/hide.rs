//! Replaces addresses in a text, each by the same name everywhere, so that the text still shows which are the same and
//! which are of one network.

use std::{
    collections::HashMap,
    hash::Hash,
    net::{IpAddr, Ipv4Addr, Ipv6Addr},
};

/// The names that were given so far.
#[derive(Debug, Default)]
pub(super) struct Pseudonyms {
    v4: Networks<[u8; 3], Ipv4Addr>,
    v6: Networks<[u8; 8], Ipv6Addr>,
    macs: Numbers<[u8; 6]>,
}

/// Numbers for values, from 1 on, in the order in which they come.
#[derive(Debug)]
struct Numbers<T>(HashMap<T, usize>);

/// Networks, each with its addresses.
#[derive(Debug)]
struct Networks<N, A> {
    networks: Numbers<N>,
    addresses: HashMap<N, Numbers<A>>,
}

impl<T> Default for Numbers<T> {
    fn default() -> Self {
        Self(HashMap::new())
    }
}

impl<N, A> Default for Networks<N, A> {
    fn default() -> Self {
        Self { networks: Numbers::default(), addresses: HashMap::new() }
    }
}

impl<T: Eq + Hash> Numbers<T> {
    fn of(&mut self, value: T) -> usize {
        let next = self.0.len() + 1;
        *self.0.entry(value).or_insert(next)
    }
}

impl<N: Eq + Hash + Copy, A: Eq + Hash> Networks<N, A> {
    fn of(&mut self, network: N, address: A) -> (usize, usize) {
        (self.networks.of(network), self.addresses.entry(network).or_default().of(address))
    }
}

impl Pseudonyms {
    /// The text with names instead of addresses.
    pub(super) fn hide(&mut self, text: &str) -> String {
        let is_part = |c: char| c.is_ascii_alphanumeric() || c == ':' || c == '.';
        let mut hidden = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(start) = rest.find(is_part) {
            let (before, from) = rest.split_at(start);
            let (word, after) = from.split_at(from.find(|c| !is_part(c)).unwrap_or(from.len()));
            hidden += before;
            hidden += &self.word(word);
            rest = after;
        }
        hidden + rest
    }

    /// A word of letters, digits, colons and points, with a name if it is an address, with or without a port.
    fn word(&mut self, word: &str) -> String {
        // The end of a sentence, or of a key.
        let bare = word.trim_end_matches(['.', ':']);
        let tail = &word[bare.len()..];
        // `2001:db8::/32` ends with colons that belong to the address.
        for (address, tail) in [(word, ""), (bare, tail)] {
            if let Some(name) = self.name(address) {
                return name + tail;
            }
        }
        // The ID of a bridge: its priority, and its MAC.
        if let Some((priority, address)) = bare.split_once('.')
            && mac(address).is_some()
            && let Some(name) = self.name(address)
        {
            return format!("{priority}.{name}{tail}");
        }
        if let Some((address, port)) = bare.rsplit_once(':')
            && address.parse::<Ipv4Addr>().is_ok()
            && let Some(name) = self.name(address)
        {
            return format!("{name}:{port}{tail}");
        }
        word.to_owned()
    }

    fn name(&mut self, word: &str) -> Option<String> {
        if let Some(mac) = mac(word) {
            let is_special = mac == [0; 6] || mac == [0xff; 6];
            return (!is_special).then(|| format!("<mac {}>", self.macs.of(mac)));
        }
        match word.parse().ok()? {
            IpAddr::V4(addr) => {
                let [a, b, c, _] = addr.octets();
                // A mask tells nothing about a network.
                let is_mask = addr.to_bits().leading_ones() + addr.to_bits().trailing_zeros() >= 32;
                let is_special = addr.is_loopback() || addr.is_multicast() || is_mask;
                (!is_special).then(|| {
                    let (network, host) = self.v4.of([a, b, c], addr);
                    format!("<ipv4 {network}.{host}>")
                })
            }
            IpAddr::V6(addr) => {
                let mut network = [0; 8];
                network.copy_from_slice(&addr.octets()[..8]);
                let is_special = addr.is_loopback() || addr.is_multicast() || addr.is_unspecified();
                (!is_special).then(|| {
                    let (network, host) = self.v6.of(network, addr);
                    format!("<ipv6 {network}.{host}>")
                })
            }
        }
    }
}

/// Six numbers of one or two hexadecimal digits: `ip -d link` writes those of bridges without zeros in front.
fn mac(word: &str) -> Option<[u8; 6]> {
    let mut bytes = [0; 6];
    let mut pairs = word.split(':');
    for byte in &mut bytes {
        let pair = pairs.next().filter(|pair| matches!(pair.len(), 1 | 2))?;
        *byte = u8::from_str_radix(pair, 16).ok()?;
    }
    pairs.next().is_none().then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hidden(text: &str) -> String {
        Pseudonyms::default().hide(text)
    }

    #[test]
    fn an_address_has_the_same_name_everywhere_and_its_network_shows() {
        assert_eq!(
            hidden("192.168.1.2:40000 > 198.51.100.7:443, 192.168.1.3 via 192.168.1.2."),
            "<ipv4 1.1>:40000 > <ipv4 2.1>:443, <ipv4 1.2> via <ipv4 1.1>."
        );
        assert_eq!(
            hidden("[2001:db8::1]:443 2001:db8::/32 fe80::1%eth0"),
            "[<ipv6 1.1>]:443 <ipv6 1.2>/32 <ipv6 2.1>%eth0"
        );
        assert_eq!(
            hidden("\"mac\": \"02:00:00:00:00:01\", link/ether 02:00:00:00:00:01 brd ff:ff:ff:ff:ff:ff"),
            "\"mac\": \"<mac 1>\", link/ether <mac 1> brd ff:ff:ff:ff:ff:ff"
        );
        assert_eq!(
            hidden("bridge_id 8000.2:0:0:0:0:1 designated_root 8000.02:00:00:00:00:01 address 2:0:0:0:0:a"),
            "bridge_id 8000.<mac 1> designated_root 8000.<mac 1> address <mac 2>"
        );
    }

    #[test]
    fn what_is_no_address_and_what_tells_nothing_stays() {
        for text in [
            "2026-01-02T03:04:05.678Z INFO shuntd::daemon: epoch 7: route",
            "12:01:07.104 punt tcp lan0",
            "version 0.1.0, Linux 6.18.4, std::fmt",
            "127.0.0.1 ::1 :: 0.0.0.0 255.255.255.0 224.0.0.1 ff02::1",
            "mark 0x10/0xf0 handle 8001: dev eth0.5",
            "",
        ] {
            assert_eq!(hidden(text), text);
        }
    }
}
