# One call of the HTTP API: perl call.pl SOCKET METHOD PATH [BODY]. Prints the body of the answer; exit code 1
# unless the status is 2xx.
use strict;
use warnings;
use IO::Socket::UNIX;

my ($socket, $method, $path, $body) = (@ARGV, '');
# A server that is started by the connection answers once it is ready.
alarm 120;
my $peer = IO::Socket::UNIX->new($socket) or die "$socket: $!\n";
my $length = length $body;
print $peer "$method $path HTTP/1.1\r\nHost: runner\r\nConnection: close\r\n"
    . "Content-Type: application/json\r\nContent-Length: $length\r\n\r\n$body";
$peer->flush;
my ($head, $said) = split /\r\n\r\n/, join('', <$peer>), 2;
die "no answer\n" unless defined $said;
print $said;
exit($head =~ m{^HTTP/1\.1 2} ? 0 : 1);
