# export_facts.pl FOLDER...: what exports of a chat model say of how texts begin and end and how
# conversations are written, of its folders and GGUF files: a line for each fact, its name and its
# value. Of arrays in GGUF it is the length, of texts with white space a hash.
use strict;
use warnings;
use Digest::MD5 'md5_hex';
use JSON::PP;

my $json = JSON::PP->new->canonical->allow_nonref;
my %keys = ('config.json' => [qw(bos_token_id eos_token_id pad_token_id)],
            'generation_config.json' => [qw(bos_token_id eos_token_id pad_token_id)],
            'tokenizer_config.json' => [qw(tokenizer_class bos_token eos_token pad_token chat_template)]);

sub bytes_of {
  my $path = shift;
  open(my $file, '<:raw', $path) or return undef;
  local $/;
  return <$file>;
}

sub show {
  my ($name, $value) = @_;
  print "$name ", $value =~ /\s/ ? 'md5:' . substr(md5_hex($value), 0, 12) : $value, "\n";
}

sub show_folder {
  my $folder = shift;
  for my $name (sort keys %keys) {
    my $bytes = bytes_of("$folder/$name") // next;
    my $object = $json->decode($bytes);
    show("$folder/$name/$_", $json->encode($object->{$_})) for grep { defined $object->{$_} } @{$keys{$name}};
  }
}

my $rest;  # of a GGUF file
sub take {
  my ($format, $size) = @_;
  return unpack($format, substr($rest, 0, $size, ''));
}
sub text { my $size = take('Q<', 8); return take("a$size", $size); }

my %numbers = (0 => ['C', 1], 1 => ['c', 1], 2 => ['S<', 2], 3 => ['s<', 2], 4 => ['L<', 4],
               5 => ['l<', 4], 6 => ['f<', 4], 7 => ['C', 1], 10 => ['Q<', 8], 11 => ['q<', 8],
               12 => ['d<', 8]);
sub value {
  my $type = shift;
  return text() if $type == 8;
  return take(@{$numbers{$type}}) if $type != 9;
  my ($of, $count) = (take('L<', 4), take('Q<', 8));
  value($of) for 1 .. $count;
  return "[$count]";
}

sub show_gguf {
  my $path = shift;
  $rest = bytes_of($path);
  my ($magic, undef, undef, $count) = (take('a4', 4), take('L<', 4), take('Q<', 8), take('Q<', 8));
  $magic eq 'GGUF' or die "$path: no GGUF file\n";
  for (1 .. $count) {
    my $key = text();
    my $value = value(take('L<', 4));
    show("$path/$key", $value) if $key =~ /^tokenizer[.]/;
  }
}

for my $folder (@ARGV) {
  show_folder($_) for glob("$folder/by_*");
  show_gguf($_) for glob("$folder/*.gguf");
}
