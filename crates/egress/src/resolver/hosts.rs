//! The `hosts` file (hosts(5)). Pure.

use std::net::IpAddr;

use spec::host_name::HostName;

/// The addresses of `name` in the file, in file order.
#[must_use]
pub fn look_up(text: &[u8], name: &HostName) -> Vec<IpAddr> {
    let mut found = Vec::new();
    for line in text.split(|byte| *byte == b'\n') {
        let line = line.split(|byte| *byte == b'#').next().unwrap_or_default();
        let Ok(line) = str::from_utf8(line) else {
            continue;
        };
        let mut words = line.split_ascii_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else {
            continue;
        };
        let has_name = words.any(|word| HostName::parse(word.as_bytes()).as_ref() == Ok(name));
        if has_name && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn the_addresses_of_all_lines_are_found_in_order() {
        let text = b"127.0.0.1 localhost\n# 1.1.1.1 a.com\n93.184.216.34\ta.com  www.A.com # x\n\
            bad a.com\n2606:2800::1 a.com\n93.184.216.34 a.com\n\xff a.com\n10.0.0.1 b.com";
        let of = |name: &str| look_up(text, &HostName::parse(name.as_bytes()).expect(name));
        let shown: Vec<String> = of("a.com").iter().map(ToString::to_string).collect();
        assert_eq!(shown, ["93.184.216.34", "2606:2800::1"]);
        assert_eq!(of("www.a.com").len(), 1);
        assert_eq!(of("b.com").len(), 1);
        assert!(of("com").is_empty());
    }

    proptest! {
        #[test]
        fn any_file_is_parsed_without_a_panic(text: Vec<u8>) {
            let name = HostName::parse(b"a.com").expect("a name");
            let found = look_up(&text, &name);
            prop_assert!(found.len() <= text.len());
        }
    }
}
