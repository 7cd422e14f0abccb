# frozen_string_literal: true

require "digest"

# A file for macOS as a linker would write it, with nothing in it but what says where it can be loaded.
class MachFile
  PAGE = 4096

  def initialize(cpu: 0x0100_000c, name: "fastrack.bundle", libraries: ["/usr/lib/libSystem.B.dylib"], macos: [11, 0], defined: "_Init_fastrack", linked: ["_kqueue"],
                 looked_up: ["_rb_funcallv"], damage: false)
    @cpu = cpu
    @name = name
    @libraries = libraries
    @macos = macos
    # Names with their types and descriptions, of which the upper half says in which library they are.
    @symbols = [[defined, 0x0f, 0], *linked.map { |one| [one, 0x01, 0x100] }, *looked_up.map { |one| [one, 0x01, -0x200] }]
    @damage = damage
  end

  def bytes
    body = unsigned
    signature = signature_of(body)
    body = body.sub("\0" * 64, "#{"\0" * 63}!") if @damage
    body + signature
  end

  private

  # The header and the commands have a page, the symbols another one, the signature comes last.
  def unsigned
    strings = "\0#{@symbols.map { |name, _, _| "#{name}\0" }.join}"
    place = 1
    table = @symbols.map do |name, type, description|
      [place, type, 1, description, 0].pack("L<CCs<Q<").tap { place += name.bytesize + 1 }
    end.join
    end_of_table = PAGE + table.bytesize
    commands = [dylib(0xd, @name), *@libraries.map { |one| dylib(0xc, one) }, [0x32, 24, 1, @macos[0] << 16 | @macos[1] << 8, 0, 0].pack("L<6"),
                [0x2, 24, PAGE, @symbols.size, end_of_table, strings.bytesize].pack("L<6"), [0x1d, 16, 2 * PAGE, PAGE].pack("L<4")]
    head = [0xfeedfacf, @cpu, 0, 6, commands.size, commands.sum(&:bytesize), 0, 0].pack("L<8") + commands.join
    head.ljust(PAGE, "\0") + (table + strings).ljust(PAGE, "\0")
  end

  def dylib(kind, name)
    name = name.ljust((name.bytesize / 8 + 1) * 8, "\0")
    [kind, 24 + name.bytesize, 24, 0, 0, 0].pack("L<6") + name
  end

  # A blob with one code directory: SHA-256 of each page.
  def signature_of(body)
    sums = body.scan(/.{#{PAGE}}/mn).map { |page| Digest::SHA256.digest(page) }
    directory = [0xfade0c02, 44 + 32 * sums.size, 0x20400, 2, 44, 0, 0, sums.size, body.bytesize, 32, 2, 0, 12, 0].pack("N9C4N") + sums.join
    ([0xfade0cc0, 20 + directory.bytesize, 1, 0, 20].pack("N5") + directory).ljust(PAGE, "\0")
  end
end
