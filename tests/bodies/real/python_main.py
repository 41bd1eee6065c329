import sys
sys.path.insert(0, 'lib')
import markupsafe, markupsafe._speedups, six
print(six.ensure_text(b'text'), markupsafe.escape('<b>'), markupsafe._speedups.escape('<i>'))
