cd /w/a; cat README vendor/c/inner.txt services/x/y/inner.txt services/api/main.txt
cat services/x/y/lent/file file
echo x >services/x/y/new && echo wrote; ls services/x/y
(echo x >vendor/new || echo x >vendor/c/new || echo x >services/x/new || echo x >new) 2>/dev/null || echo refused
