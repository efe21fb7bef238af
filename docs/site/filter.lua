-- Pandoc filter of docs/site/build.cmake. Turns links to pages (x.md) into links to their HTML
-- files (x.html), links to other files and folders of the tree into links to their listings
-- (comm/work.h.html, kernels/cpu/index.html), and writes the search records of the page.
--
-- Metadata: root, the tree; page, the page's path in it; and the names of three files, to which it
-- appends lines: records, for the search; listings, paths of linked files and folders that are no
-- pages; images, paths of the images of the page.

local root, page
local listings, images = {}, {}

-- Returns the path, without "." and "..", of the link `target` of a page in `folder`.
local function normal_path(folder, target)
  local parts = {}
  for part in (folder .. target):gmatch("[^/]+") do
    if part == ".." then
      table.remove(parts)
    elseif part ~= "." then
      table.insert(parts, part)
    end
  end
  return table.concat(parts, "/")
end

local function is_folder(path)
  local file = io.open(path)
  if not file then return false end
  local text = file:read(1)
  local size = file:seek("end")
  file:close()
  return text == nil and size ~= 0
end

local function html_of(path)
  return path == "README.md" and "index.html" or (path:gsub("%.md$", ".html"))
end

local function up_of(path)
  return (path:gsub("[^/]*$", ""):gsub("[^/]+/", "../"))
end

local function link(element)
  local target, anchor = element.target:match("^([^#]*)(.*)$")
  if target == "" or target:match("^%a+:") then return nil end
  local path = normal_path(page:gsub("[^/]*$", ""), target)
  if path:match("%.md$") then
    element.target = up_of(page) .. html_of(path) .. anchor
    return element
  end
  local place = is_folder(root .. "/" .. path) and path .. "/index.html" or path .. ".html"
  table.insert(listings, path)
  element.target = up_of(page) .. place
  return element
end

local function image(element)
  if not element.src:match("^%a+:") then
    table.insert(images, normal_path(page:gsub("[^/]*$", ""), element.src))
  end
end

-- Tables and code may be wider than the page: makes them scroll separately, also by keyboard.
local function scroll(element)
  return {
    pandoc.RawBlock("html", '<div class="scroll" tabindex="0">'), element,
    pandoc.RawBlock("html", "</div>"),
  }
end

local function quoted(text)
  return '"' .. text:gsub('[%c\\"]', function(c) return ("\\u%04x"):format(c:byte()) end)
    :gsub("<", "\\u003c") .. '"'
end

-- Returns the page's sections, {page, anchor, title, text}. The first one is the text before the
-- second heading.
local function sections(blocks, title)
  local result = { { anchor = "", title = title, text = {} } }
  for _, block in ipairs(blocks) do
    if block.t == "Header" and block.level > 1 then
      table.insert(result, {
        anchor = block.identifier, title = pandoc.utils.stringify(block.content), text = {} })
    elseif block.t ~= "RawBlock" and block.t ~= "Header" then
      local text = block.t == "CodeBlock" and block.text
        or pandoc.write(pandoc.Pandoc({ block }), "plain"):gsub("%-%-%-+", ""):gsub("%s+", " ")
      table.insert(result[#result].text, text)
    end
  end
  return result
end

local function write_lines(path, lines)
  local file = assert(io.open(path, "w"))
  for _, line in ipairs(lines) do file:write(line, "\n") end
  file:close()
end

function Pandoc(doc)
  root = pandoc.utils.stringify(doc.meta.root)
  page = pandoc.utils.stringify(doc.meta.page)
  local title = page
  for _, block in ipairs(doc.blocks) do
    if block.t == "Header" and block.level == 1 then
      title = pandoc.utils.stringify(block.content)
      break
    end
  end
  local records = {}
  for _, section in ipairs(sections(doc.blocks, title)) do
    table.insert(records, ("[%s, %s, %s, %s, %s],"):format(
      quoted(html_of(page)), quoted(section.anchor), quoted(title), quoted(section.title),
      quoted(table.concat(section.text, " "))))
  end
  write_lines(pandoc.utils.stringify(doc.meta.records), records)
  doc = doc:walk({ Link = link, Image = image, Table = scroll, CodeBlock = scroll })
  write_lines(pandoc.utils.stringify(doc.meta.listings), listings)
  write_lines(pandoc.utils.stringify(doc.meta.images), images)
  doc.meta.pagetitle = title
  doc.meta.up = pandoc.RawInline("html", up_of(page))
  return doc
end
