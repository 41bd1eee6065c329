//! Name resolution files of the body, and name resolution of the relay.

on_both_captures! {
    /// Case 44: the runner writes the files; a resolver or hosts file of the body does not change
    /// the result.
    fn a_body_that_rewrites_its_resolver_reaches_no_other_server(setting) {
        let unique = &setting.unique;
        let seen = setting.run(&["v4-93-184-216-44.zone.example:443", "v4-93-184-216-44.zone.example:9000"], "
for path in ('/etc/resolv.conf', '/etc/hosts', '/etc/nsswitch.conf'):
    for how in ('a', 'w'):
        try:
            open(path, how).write('nameserver 93.184.216.45\\n')
            say(path, how, 'was written')
        except OSError as error:
            pass
    for change in (os.remove, lambda path: os.rename('/tmp/other', path), lambda path: os.symlink('/tmp/other', path)):
        open('/tmp/other', 'w').write('nameserver 93.184.216.45\\n')
        try:
            change(path)
            say(path, 'was changed')
        except OSError:
            pass
for line in open('/etc/resolv.conf'):
    if line.startswith('nameserver'):
        say('server', line.split()[1])
say('hosts', {word for line in open('/etc/hosts') for word in line.split('#')[0].split()[:1]} <= {'127.0.0.1', '::1'})
os.environ['LOCALDOMAIN'] = unique + '.example'
os.environ['RES_OPTIONS'] = 'ndots:9 rotate'
os.environ['HOSTALIASES'] = '/tmp/aliases'
open('/tmp/aliases', 'w').write('alias 93.184.216.45\\nother evil.example\\n')
say('alias', resolve('other'))
# A resolver of the body's own that asks another server is answered by us.
say('another server', ask('evil-' + unique + '.example', server='93.184.216.45'))
# What a hosts file of its own would say.
say('its own hosts file', dial('93.184.216.44', 443, hello('v4-93-184-216-44.zone.example')))
say('the name', dial('v4-93-184-216-44.zone.example', 9000))");
        let said: Vec<&String> = seen.said.iter().filter(|line| !line.starts_with("alias")).collect();
        assert_eq!(said, [
            "server: 198.18.0.1",
            "hosts: True",
            "another server: no such name",
            "its own hosts file: reset",
            "the name: 93.184.216.44 9000",
        ], "{seen:#?}");
        assert!(seen.denials.contains(&format!("dns name-not-allowed evil-{unique}.example x1")));
        assert!(seen.denials.contains(&"tcp ip-literal 93.184.216.44:443 x1".to_owned()));
        let log = setting.outside.log();
        assert_eq!(log.packets_to("93.184.216.45"), [""; 0]);
        assert_eq!(log.packets_to_port(443).iter().filter(|to| to.ends_with("216.44")).count(), 0);
    }

    /// The sources of addresses: the host's hosts file and name server. The other names have no
    /// usable record.
    fn an_allowed_name_is_resolved_outside_as_the_host_resolves_it(setting) {
        let unique = &setting.unique;
        let below = |label: &str| format!("{label}.{unique}.zone.example");
        let (two, six) = (
            below("v4-93-184-216-51.v4-93-184-216-52"),
            below("v6-26062800022000010000000000000051"),
        );
        let (gone, failed, long, mixed) = (
            below("nx"),
            below("fail"),
            below("tc"),
            below("v4-93-184-216-53.v6-26062800022000010000000000000053"),
        );
        // A server that answers NXDOMAIN for names without IPv6 addresses.
        let half = below("nx6.v4-93-184-216-56");
        let names = ["hosts.example.com", &two, &six, &gone, &failed, &long, &mixed, &half];
        let script = names.map(|name| format!("say({name:?}, dial({name:?}, 9000))\n")).concat();
        let allowed = names.map(|name| format!("{name}:9000"));
        let seen = setting.run(&allowed.each_ref().map(String::as_str), &script);
        seen.assert_said(&format!("hosts.example.com: 93.184.216.34 9000
            {two}: 93.184.216.51 9000
            {six}: 2606:2800:220:1::51 9000
            {gone}: reset
            {failed}: reset
            {long}: reset
            {mixed}: 93.184.216.53 9000
            {half}: 93.184.216.56 9000"));
        // Nothing was denied.
        seen.assert_denied(&[]);
        let unreachable = &seen.done.report["egress"]["unreachable"];
        assert_eq!(unreachable.as_array().map(Vec::len), Some(3), "{unreachable}");
        let log = setting.outside.log();
        assert_eq!(log.questions_for("hosts.example.com"), 0);
    }

    /// An address of `--add-host` is checked like any other.
    fn an_added_host_has_the_stated_address_and_no_private_one(setting) {
        let unique = &setting.unique;
        let (stated, private) = (format!("{unique}a.example"), format!("{unique}b.example"));
        let adds = [format!("{stated}:93.184.216.54"), format!("{private}:10.1.2.3")];
        let allowed = [format!("{stated}:9000"), format!("{private}:9000")];
        let flags = ["--allow-net", &allowed[0], "--allow-net", &allowed[1], "--add-host", &adds[0],
            "--add-host", &adds[1]];
        let script = format!("say('stated', dial({stated:?}, 9000))
say('private', dial({private:?}, 9000))");
        let seen = setting.run_with(&flags, &script);
        seen.assert_said("stated: 93.184.216.54 9000\nprivate: reset");
        seen.assert_denied(&[&format!("tcp resolves-to-private {private}:9000 x1")]);
        let log = setting.outside.log();
        assert_eq!(log.questions_for(&stated) + log.questions_for(&private), 0);
        assert_eq!(log.packets_to("10.1.2.3"), [""; 0]);
    }
}
