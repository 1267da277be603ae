use super::*;
use crate::commands::arguments::parse_args;
use shunt_api::HostNames;

fn named(words: &str) -> Result<NamedConnections, Failure> {
    parse_args::<ConnectionArgs>(words).unwrap().named()
}

#[test]
fn a_connection_is_named_by_words_or_by_options() {
    let why = |words: &str| named(words).unwrap().rest.query();
    let whole = "src=192.0.2.1&dst=198.51.100.1&sport=1000&dport=53&proto=udp";
    for same in [
        "udp 192.0.2.1:1000 198.51.100.1:53",
        "UDP 192.0.2.1:1000 198.51.100.1:53",
        "-p udp -s 192.0.2.1 --sport 1000 -d 198.51.100.1 --dport 53",
        "-p udp --host 192.0.2.1:1000 --dst 198.51.100.1:53",
        "udp 192.0.2.1:1000 --dst 198.51.100.1 --dport 53",
    ] {
        assert_eq!(why(same), whole, "{same}");
    }
    assert_eq!(why("192.0.2.1 [2001:db8::1]:443"), "src=192.0.2.1&dst=2001:db8::1&dport=443");
    assert_eq!(why("tcp 192.0.2.0/24 --dport 22"), "src=192.0.2.0/24&dport=22&proto=tcp");
    // The words of a rule of `shunt off` remove it.
    for words in ["tcp 192.0.2.1:1000 198.51.100.1:443", "192.0.2.0/24 --dport 443", "--dst 203.0.113.1"] {
        assert_eq!(named(words).unwrap().rest.words(), words);
    }
    assert_eq!((why(""), named("").unwrap().are_all()), (String::new(), true));
}

#[test]
fn words_that_contradict_each_other_are_refused() {
    for (words, why) in [
        ("192.0.2.1 tcp", "`tcp`: the protocol stands before"),
        ("192.0.2.1 192.0.2.2 192.0.2.3", "`192.0.2.3`: expected at most a source and a destination"),
        ("192.0.2.1 --host 192.0.2.2", "`192.0.2.1`: the same end is named by an option"),
        ("192.0.2.1:80 --sport 81", "`192.0.2.1:80`: the port is 81 by an option"),
    ] {
        let said = named(words).unwrap_err().message;
        assert!(said.contains(why), "{words}: {said}");
    }
    assert!(parse_args::<ConnectionArgs>("192.0.2.1:99999").is_err());
}

#[test]
fn a_word_that_is_no_host_is_answered_with_all_that_it_could_be() {
    let why = |words: &str| named(words).unwrap().with(|name| HostNames::default().addresses(name));
    for wrong in ["icmp 192.0.2.1", "nosuch", "www.example.com"] {
        let said = why(wrong).unwrap_err().message;
        assert!(said.contains("neither tcp nor udp, nor a host") && said.contains("192.0.2.1"), "{said}");
    }
    let device = why("lo").unwrap_err().message;
    assert!(device.contains("`lo` is a network device, not a host"), "{device}");
}

#[test]
fn a_host_is_all_its_addresses_and_both_ends_are_of_one_family() {
    let known = KnownHosts::sample();
    let queries = |words: &str| -> Vec<String> {
        let named = named(words).unwrap();
        assert_eq!(named.words(), words);
        let found = named.with(|name| known.addresses(name));
        found.map_or_else(|why| vec![why.message], |all| all.iter().map(Selection::query).collect())
    };
    assert_eq!(queries("tv"), ["src=192.168.1.3", "src=fd00:1::3"]);
    assert_eq!(queries("--src tv"), ["src=192.168.1.3", "src=fd00:1::3"]);
    assert_eq!(queries("--dst tv"), ["dst=192.168.1.3", "dst=fd00:1::3"]);
    assert_eq!(queries("02:00:00:00:00:03"), ["src=192.168.1.3", "src=fd00:1::3"]);
    assert_eq!(queries("tcp tv 2001:db8::1"), ["src=fd00:1::3&dst=2001:db8::1&proto=tcp"]);
    assert_eq!(queries("laptop tv"), ["src=192.168.1.4&dst=192.168.1.3"]);
    assert_eq!(queries("tv --dport 443"), ["src=192.168.1.3&dport=443", "src=fd00:1::3&dport=443"]);
    assert_eq!(queries("192.168.1.3"), ["src=192.168.1.3"]);
    assert_eq!(queries("laptop:22"), ["src=192.168.1.4&sport=22"]);
    for same in ["tcp Laptop 198.51.100.1:443", "--proto tcp --src laptop --dst 198.51.100.1 --dport 443"] {
        assert_eq!(queries(same), ["src=192.168.1.4&dst=198.51.100.1&dport=443&proto=tcp"]);
    }
    assert!(queries("laptop 2001:db8::1")[0].contains("no address of the same family"));
    assert!(queries("nosuch")[0].contains("`nosuch` is neither tcp nor udp"));
}
