# frozen_string_literal: true

require "strscan"

# Which file of a Rust crate imports which: read from its `use` lines and from the paths in its code, resolved through
# re-exports to the file that defines the item. Tests are left out. It reads Rust only as far as that takes: what a macro
# makes is not seen.
class RustImports
  Token = Struct.new(:text, :line)
  # A `use` of one name, or a path in code. `glob` for `use path::*`.
  Import = Struct.new(:segments, :name, :glob, :line)
  # One module, in a file of its own or inline. `children` are modules by name, `items` what it defines.
  Mod = Struct.new(:file, :parent, :children, :items, :uses, :paths, :words) do
    def initialize(file, parent) = super(file, parent, {}, {}, [], [], Hash.new(0))
    def root = parent ? parent.root : self
    def within?(other) = equal?(other) || (parent&.within?(other) || false)
  end

  DEFINITIONS = %w[fn struct enum union trait type const static].freeze
  TOKEN = /[A-Za-z_]\w*|::|\d\w*|\S/
  SPACE = %r{\s+|//[^\n]*}
  STRING = /b?r(\#*)".*?"\1|[bc]?"(?:\\.|[^"\\])*"/m
  CHARACTER_OR_LIFETIME = /b?'(?:\\(?:x\h\h|u[^']*|.)|[^\\'])'|'[A-Za-z_]\w*/
  SKIPPED = Regexp.union(SPACE, STRING, CHARACTER_OR_LIFETIME)

  # The imports: file => { file or crate => line }. The files that were read, and those that no `mod` leads to.
  attr_reader :edges, :files, :lost

  # `crate` is the crate's folder, `others` are the names of crates whose imports count as well.
  def initialize(crate, others)
    @source = File.join(crate, "src")
    @others = others
    @edges = Hash.new { |edges, file| edges[file] = {} }
    @mods = []
    @files = []
    read(File.join(@source, "lib.rs"), nil)
    @lost = Dir[File.join(@source, "**/*.rs")].sort - @files - @tests.to_a
    @mods.each { |mod| connect(mod) }
  end

  private

  # Reads a file and those that it declares.
  def read(file, parent)
    @files << file
    mod = Mod.new(file, parent)
    @mods << mod
    tokens = tokens(File.read(file))
    read_module(tokens, mod, folder(file))
    mod
  end

  # Where the children of a file's module are.
  def folder(file)
    %w[lib.rs mod.rs].include?(File.basename(file)) ? File.dirname(file) : file.delete_suffix(".rs")
  end

  def tokens(text)
    scanner = StringScanner.new(text)
    tokens = []
    line = 1
    until scanner.eos?
      skipped = comment(scanner) || scanner.scan(SKIPPED)
      tokens << Token.new(scanner.scan(TOKEN), line) unless skipped
      line += skipped.count("\n") if skipped
    end
    tokens
  end

  # Block comments nest.
  def comment(scanner)
    return unless (text = scanner.scan(%r{/\*}))

    depth = 1
    while depth.positive? && (part = scanner.scan_until(%r{/\*|\*/}))
      text += part
      depth += part.end_with?("/*") ? 1 : -1
    end
    text
  end

  # Reads up to the brace that ends the module. Items at its own level are those that a path can name.
  def read_module(tokens, mod, folder)
    depth = 0
    before = nil
    while (token = tokens.shift)
      case token.text
      when "#" then read_attribute(tokens)
      when "{" then depth += 1
      when "}" then return if (depth -= 1).negative?
      when "use" then read_use(tokens, mod, [], token.line) unless tokens.first&.text == "<" # impl Trait + use<'a>
      when "mod" then read_mod(tokens, mod, folder)
      when "in" then skip_path(tokens) if before == "(" # pub(in crate::a)
      when *DEFINITIONS then mod.items[tokens.first.text] = true if depth.zero? && tokens.any?
      when /\A[A-Za-z_]/ then read_path(tokens, mod, token) unless before == "."
      end
      before = token.text
    end
  end

  # An item that is for tests only is left out.
  def read_attribute(tokens)
    tokens.shift if tokens.first&.text == "!"
    attribute = balanced(tokens, "[", "]").join(" ")
    skip_item(tokens) if attribute.match?(/\A\[ cfg \( (test|all \( (.* , )?test\b)/)
  end

  def balanced(tokens, open, close)
    taken = []
    depth = 0
    while (token = tokens.shift)
      taken << token.text
      depth += 1 if token.text == open
      depth -= 1 if token.text == close
      return taken if depth.zero?
    end
    taken
  end

  def skip_item(tokens)
    until tokens.empty?
      case tokens.first.text
      when "mod" then note_tests(tokens)
      when "{" then return balanced(tokens, "{", "}")
      when "(" then balanced(tokens, "(", ")")
      when "[" then balanced(tokens, "[", "]")
      when ";" then return tokens.shift
      else tokens.shift
      end
    end
  end

  # Their files are not lost, but not read either.
  def note_tests(tokens)
    tokens.shift
    (@test_names ||= []) << tokens.first.text
    @tests = Dir[File.join(@source, "**/{#{@test_names.join(",")}}{.rs,/**/*.rs}")]
  end

  def read_mod(tokens, mod, folder)
    name = tokens.shift.text
    if tokens.first.text == "{"
      tokens.shift
      child = Mod.new(mod.file, mod)
      @mods << child
      mod.children[name] = child
      read_module(tokens, child, File.join(folder, name))
    elsif (file = ["#{name}.rs", "#{name}/mod.rs"].map { |path| File.join(folder, path) }.find { |path| File.exist?(path) })
      mod.children[name] = read(file, mod)
    end
  end

  def skip_path(tokens)
    tokens.shift until tokens.first.nil? || tokens.first.text == ")"
  end

  # A tree of `use`: a::{self, b, c::d as e, f::*}. Gives the token that ended it.
  def read_use(tokens, mod, prefix, line)
    segments = []
    name = glob = token = nil
    while (token = tokens.shift)
      case token.text
      when "{"
        nil while read_use(tokens, mod, prefix + segments, line)&.text == ","
        return tokens.shift
      when "*" then glob = true
      when "as" then name = tokens.shift.text
      when ",", ";", "}" then break
      when "::" then next
      else segments << token.text
      end
    end
    return token if segments.empty? && !glob # after a list's last comma

    segments.pop if segments.last == "self" && prefix.any?
    path = prefix + segments
    mod.uses << Import.new(path, glob ? nil : name || path.last, glob, line)
    token
  end

  def read_path(tokens, mod, first)
    segments = [first.text]
    while tokens[0]&.text == "::" && tokens[1]&.text&.match?(/\A[A-Za-z_]/)
      tokens.shift
      segments << tokens.shift.text
    end
    mod.words[segments.first] += 1
    mod.paths << Import.new(segments, nil, false, first.line) if segments.size > 1
  end

  def connect(mod)
    mod.uses.each do |use|
      if use.glob
        connect_glob(mod, use)
      else
        target = resolve(mod, use.segments, [use])
        # A parent may re-export what is its children's: that is no import unless its own code names it.
        add(mod, target, use.line) unless target.is_a?(Mod) && target.within?(mod) && mod.words[use.name].zero?
      end
    end
    mod.paths.each { |path| add(mod, resolve(mod, path.segments, []), path.line) }
  end

  # Of all that a glob brings, what the code names.
  def connect_glob(mod, use)
    target = resolve(mod, use.segments, [use])
    return add(mod, target, use.line) unless target.is_a?(Mod)

    mod.words.each_key { |word| add(mod, walk(target, [word], [use]), use.line) if names?(target, word) }
  end

  def names?(mod, name)
    mod.children.key?(name) || mod.items.key?(name) || mod.uses.any? { |use| use.name == name }
  end

  def add(mod, target, line)
    target = target.file if target.is_a?(Mod)
    @edges[mod.file][target] ||= line unless target.nil? || target == mod.file
  end

  # The module that defines what a path names, the name of another crate, or nil for anything else.
  def resolve(mod, segments, seen)
    first, *rest = segments
    case first
    when "crate" then walk(mod.root, rest, seen)
    when "self" then walk(mod, rest, seen)
    when "super" then mod.parent && (rest.first == "super" ? resolve(mod.parent, rest, seen) : walk(mod.parent, rest, seen))
    else
      named = mod.children.key?(first) || mod.uses.any? { |use| use.name == first && !seen.include?(use) }
      named ? walk(mod, segments, seen) : (first if @others.include?(first))
    end
  end

  def walk(mod, segments, seen)
    name, *rest = segments
    return mod if name.nil?
    return walk(mod.children[name], rest, seen) if mod.children.key?(name)

    use = mod.uses.find { |candidate| candidate.name == name && !seen.include?(candidate) }
    return resolve(mod, use.segments + rest, seen + [use]) if use

    mod.uses.select { |candidate| candidate.glob && !seen.include?(candidate) }.each do |glob|
      target = resolve(mod, glob.segments, seen + [glob])
      return walk(target, segments, seen + [glob]) if target.is_a?(Mod) && names?(target, name)
    end
    mod
  end
end
