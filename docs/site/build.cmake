# cmake -DROOT=<tree> -DOUT=<folder> -DPANDOC=<pandoc> -P build.cmake: makes a site of the tree's
# pages and of the public headers. It works from file:// and loads nothing from the network. Every
# x.md becomes x.html at the same path, and the tree's README.md becomes index.html. Files and
# folders that pages link to get listings. OUT must not exist, or must be such a site.

cmake_minimum_required(VERSION 3.25)
find_program(AWK awk REQUIRED)
if(EXISTS ${OUT} AND NOT EXISTS ${OUT}/search_index.js)
  message(FATAL_ERROR "site: ${OUT} exists and is not a site; expected a new folder or a site")
endif()
file(REMOVE_RECURSE ${OUT})

function(escape_html text out)
  string(REPLACE "&" "&amp;" text "${text}")
  string(REPLACE "<" "&lt;" text "${text}")
  string(REPLACE ">" "&gt;" text "${text}")
  set(${out} "${text}" PARENT_SCOPE)
endfunction()

# html_of(<page> <out>): gets the HTML file that is made from a page.
function(html_of page out)
  string(REGEX REPLACE "[.]md$" ".html" file "${page}")
  if(page STREQUAL "README.md")
    set(file index.html)
  endif()
  set(${out} ${file} PARENT_SCOPE)
endfunction()

# up_of(<path> <out>): gets the relative path from the path's folder to the root, "../../".
function(up_of path out)
  string(REGEX MATCHALL "/" levels "${path}")
  list(LENGTH levels count)
  string(REPEAT "../" ${count} up)
  set(${out} "${up}" PARENT_SCOPE)
endfunction()

# Makes a line of the list of pages: a link to <page> with its <title>, relative to page <current>.
function(page_item page title current out)
  html_of(${page} target)
  up_of(${current} up)
  set(mark)
  if(page STREQUAL current)
    set(mark " aria-current=\"page\"")
  endif()
  set(${out} "<li><a href=\"${up}${target}\"${mark}>${title}</a></li>\n" PARENT_SCOPE)
endfunction()

# The pages in the order of docs/README.md, which has a section for each kind of page; then all
# other pages.
set(kinds)
set(ordered)
file(STRINGS ${ROOT}/docs/README.md lines REGEX "^## |^[0-9]+[.] ")
foreach(line IN LISTS lines)
  if(line MATCHES "^## (.*)$")
    set(kind "${CMAKE_MATCH_1}")
    list(APPEND kinds "${kind}")
    set(pages_of_${kind})
  elseif(line MATCHES "[(]([a-z0-9_/]+[.]md)[)]$")
    list(APPEND pages_of_${kind} docs/${CMAKE_MATCH_1})
    list(APPEND ordered docs/${CMAKE_MATCH_1})
  endif()
endforeach()
if(NOT ordered)
  message(FATAL_ERROR "site: docs/README.md has no list of pages")
endif()
file(GLOB_RECURSE others RELATIVE ${ROOT} ${ROOT}/*.md)
list(FILTER others EXCLUDE REGEX "^(build|out|third_party/cuda_tools)/|/[.]|^[.]")
list(SORT others)
list(REMOVE_ITEM others README.md ${ordered})
set(pages README.md ${ordered} ${others})
foreach(page IN LISTS pages)
  file(STRINGS ${ROOT}/${page} title_of_${page} REGEX "^# " LIMIT_COUNT 1)
  string(REGEX REPLACE "^# " "" title_of_${page} "${title_of_${page}}")
endforeach()

# The list beside each page has all pages except single results, which bench/results/README.md links
# to.
list(APPEND kinds "The tree")
set("pages_of_The tree" ${others})
list(FILTER "pages_of_The tree" EXCLUDE REGEX "^bench/results/[^R]")

# neighbours_of(<page> <out>): links to the pages before and after it.
function(neighbours_of page out)
  set(links)
  list(FIND ordered ${page} place)
  if(NOT place EQUAL -1 OR page STREQUAL "README.md")
    up_of(${page} up)
    math(EXPR before "${place} - 1")
    math(EXPR after "${place} + 1")
    list(LENGTH ordered count)
    if(before GREATER_EQUAL 0)
      list(GET ordered ${before} other)
      html_of(${other} target)
      string(APPEND links "<a rel=\"prev\" href=\"${up}${target}\">${title_of_${other}}</a>\n")
    endif()
    if(after LESS count)
      list(GET ordered ${after} other)
      html_of(${other} target)
      string(APPEND links "<a rel=\"next\" href=\"${up}${target}\">${title_of_${other}}</a>\n")
    endif()
  endif()
  set(${out} "${links}" PARENT_SCOPE)
endfunction()

# Links at the top of the landing page.
set(doors)
foreach(door IN ITEMS
    "tutorials/first_model.md|Start|A first model in five minutes"
    "howto/finetuning.md|Fine-tune|SFT, DPO, LoRA and QLoRA"
    "tutorials/several_ranks.md|Scale|Several ranks, GPUs and hosts"
    "howto/out_of_memory.md|Out of memory?|What to change, in order"
    "reference/flags.md|Flags|With their names elsewhere"
    "explanation/architecture.md|Architecture|How it works inside")
  string(REPLACE "|" ";" door "${door}")
  list(GET door 0 page)
  list(GET door 1 name)
  list(GET door 2 words)
  if(NOT docs/${page} IN_LIST ordered)
    message(FATAL_ERROR "site: the landing page leads to docs/${page}, which docs/README.md lacks")
  endif()
  html_of(docs/${page} target)
  string(APPEND doors "<li><a href=\"${target}\"><b>${name}</b> ${words}</a></li>\n")
endforeach()

set(listings)
set(records)
foreach(page IN LISTS pages)
  set(list)
  foreach(kind IN LISTS kinds)
    string(APPEND list "<details open><summary>${kind}</summary>\n<ul>\n")
    if(kind STREQUAL "The tree" AND NOT page IN_LIST others)
      string(REPLACE "<details open><summary>The tree" "<details><summary>The tree" list "${list}")
    endif()
    foreach(other IN LISTS "pages_of_${kind}")
      page_item(${other} "${title_of_${other}}" ${page} item)
      string(APPEND list "${item}")
    endforeach()
    if(kind STREQUAL "Reference")
      up_of(${page} up)
      string(APPEND list "<li><a href=\"${up}docs/reference/api/index.html\">C++ names</a></li>\n")
    endif()
    string(APPEND list "</ul>\n</details>\n")
  endforeach()
  neighbours_of(${page} neighbours)
  set(landing)
  if(page STREQUAL "README.md")
    set(landing --variable "landing=${doors}")
  endif()
  html_of(${page} file)
  cmake_path(GET file PARENT_PATH folder)
  file(MAKE_DIRECTORY ${OUT}/${folder})
  execute_process(
    COMMAND ${PANDOC} --from gfm --to html5 --template ${CMAKE_CURRENT_LIST_DIR}/page.html
            --lua-filter ${CMAKE_CURRENT_LIST_DIR}/filter.lua --toc --toc-depth 3
            --metadata root=${ROOT} --metadata page=${page} --metadata records=${OUT}/records
            --metadata listings=${OUT}/listings --metadata images=${OUT}/images
            --variable "pages=${list}" --variable "neighbours=${neighbours}" ${landing} --output ${OUT}/${file} ${ROOT}/${page}
    ERROR_VARIABLE said RESULT_VARIABLE result)
  if(NOT result EQUAL 0 OR NOT said STREQUAL "")
    message(FATAL_ERROR "site: pandoc ended with ${result} over ${page}:\n${said}")
  endif()
  file(READ ${OUT}/records text)
  string(APPEND records "${text}")
  file(STRINGS ${OUT}/listings targets)
  list(APPEND listings ${targets})
  file(STRINGS ${OUT}/images targets)
  foreach(image IN LISTS targets)
    cmake_path(GET image PARENT_PATH folder)
    file(COPY ${ROOT}/${image} DESTINATION ${OUT}/${folder})
  endforeach()
endforeach()
file(REMOVE ${OUT}/records ${OUT}/listings ${OUT}/images)
file(COPY ${CMAKE_CURRENT_LIST_DIR}/search.js ${CMAKE_CURRENT_LIST_DIR}/site.css DESTINATION ${OUT})

# ---- Listings ----

# listing(<path> <file> <body>): a page without pandoc.
function(listing path file body)
  up_of(${file} up)
  file(WRITE ${OUT}/${file}
    "<!doctype html>\n<html lang=\"en\">\n<meta charset=\"utf-8\">\n"
    "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
    "<title>${path} - Shale</title>\n<link rel=\"stylesheet\" href=\"${up}site.css\">\n"
    "<main>\n<p><a href=\"${up}index.html\">Shale</a></p>\n<h1>${path}</h1>\n${body}"
    "</main>\n</html>\n")
endfunction()

# ---- Reference of the C++ interface: a page for each public header, and one of all names ----

include(${ROOT}/cmake/ShalePublicHeaders.cmake)
set(api docs/reference/api)
file(MAKE_DIRECTORY ${OUT}/${api})
set(all)
foreach(header IN LISTS SHALE_PUBLIC_HEADERS)
  shale_included_headers(included ${ROOT}/include/shale/${header})
  list(REMOVE_ITEM included ${SHALE_PUBLIC_HEADERS})
  if(NOT included)
    continue()
  endif()
  list(TRANSFORM included PREPEND ${ROOT}/)
  execute_process(
    COMMAND ${AWK} -v names=${OUT}/names -v root=${ROOT}/ -f ${CMAKE_CURRENT_LIST_DIR}/api.awk
            ${included}
    OUTPUT_VARIABLE body COMMAND_ERROR_IS_FATAL ANY)
  cmake_path(GET header STEM stem)
  listing("&lt;shale/${header}&gt;" "${api}/${stem}.html" "${body}")
  file(STRINGS ${OUT}/names lines)
  foreach(line IN LISTS lines)
    string(REPLACE "\t" ";" line "${line}")
    list(POP_FRONT line anchor name)
    list(APPEND all "${name}|${stem}|${anchor}")
    string(APPEND records "[\"${api}/${stem}.html\", \"${anchor}\", \"C++\", \"${name}\", \"\"],\n")
  endforeach()
  file(REMOVE ${OUT}/names)
endforeach()
list(SORT all CASE INSENSITIVE)
list(LENGTH all name_count)
list(JOIN all "\n" body)
escape_html("${body}" body)
string(REGEX REPLACE "([^\n]+)[|]([^\n|]+)[|]([^\n|]+)"
       "<li><a href=\"\\2.html#\\3\"><code>\\1</code></a> in <code>shale/\\2.h</code></li>" body "${body}")
listing("C++ names" "${api}/index.html" "<ul>\n${body}\n</ul>\n")
file(WRITE ${OUT}/search_index.js "const searchIndex = [\n${records}];\n")

list(REMOVE_DUPLICATES listings)
foreach(path IN LISTS listings)
  if(IS_DIRECTORY ${ROOT}/${path})
    file(GLOB names RELATIVE ${ROOT}/${path} ${ROOT}/${path}/*)
    set(body "<ul>\n")
    foreach(name IN LISTS names)
      string(APPEND body "<li>${name}</li>\n")
    endforeach()
    listing("${path}" "${path}/index.html" "${body}</ul>\n")
  else()
    file(READ ${ROOT}/${path} text)
    escape_html("${text}" text)
    listing("${path}" "${path}.html"
      "<div class=\"scroll\" tabindex=\"0\"><pre><code>${text}</code></pre></div>\n")
  endif()
endforeach()
list(LENGTH pages page_count)
list(LENGTH listings listing_count)
message(STATUS "site: ${page_count} pages, ${listing_count} listings, ${name_count} C++ names in ${OUT}")
